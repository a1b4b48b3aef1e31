// Package examples holds programs that show relaybus at work, each in a directory of its own.
package examples
