// Package memtransport is a broker in memory: the reference of what a transport
// does, and a tool for tests of routes and subscriptions.
//
// A [Broker] holds queues and topics. Each [Transport] that is made from it is
// a connection of its own, as another process would have, so one test can run
// several. The broker breaks on demand: it goes down, freezes, refuses, loses
// confirmations, and everything that was sent, rejected or left can be looked
// at.
//
// Nothing here reads a clock or touches the network, and whatever waits, waits
// on a channel, so a broker that is made inside a testing/synctest bubble works
// there.
package memtransport
