// Package storetest checks that a store keeps the contract of package store.
//
// A backend describes itself with a [Backend] and calls [Run] from a test:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, backend())
//	}
//
// Every case is named after the requirement or the fault that it is about, so
// a failure says which promise was broken. What a store declares in its
// [store.Features] decides which cases apply; the case "Features" logs those
// that don't, and checks the declarations themselves.
//
// [RunModel] plays random operations on two stores side by side and compares
// them after every step, [Bench] has the benchmarks that all stores share, and
// [History] checks what a test saw of executions, for stores and buses alike.
//
// Cases never assert a time that passed. The time of a store is an argument, so
// a case sets it, and what must not grow is counted ([Counters]).
package storetest
