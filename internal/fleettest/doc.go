// Package fleettest kills processes that use a bus, and checks what became of the events: support for the tests of the
// store modules. A test binary calls [Main] to be one of the processes, workers and publishers of a shop; a [Fleet]
// starts and kills them, and a [Report] compares their common log with what is in the database at the end.
//
// The log is the point of it: each process writes down what it does before its next step, all of them into one file, so
// that the order of the lines is an order of what happened which needs no clock.
package fleettest
