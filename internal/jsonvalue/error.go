package jsonvalue

import "strconv"

// Reason says which rule a text broke. The zero Reason stands for no broken
// rule and is never found in an [Error].
type Reason uint8

// The reasons for which [Check] and [CheckObject] refuse a text.
const (
	// Syntax: the text is not one JSON value as RFC 8259 writes it.
	Syntax Reason = iota + 1
	// Empty: the text has no value, only whitespace or nothing at all.
	Empty
	// TooLarge: the text has more bytes than Limits.MaxBytes.
	TooLarge
	// TooDeep: arrays and objects are nested deeper than Limits.MaxDepth.
	TooDeep
	// NotObject: the text does not begin with an object ([CheckObject] only).
	NotObject
	// InvalidUTF8: a string has bytes that are not UTF-8.
	InvalidUTF8
	// ControlChar: a string has an unescaped character below U+0020.
	ControlChar
	// LoneSurrogate: a \u escape is one half of a surrogate pair without
	// the other half next to it in the right order.
	LoneSurrogate
	// NULInName: a member name has the character U+0000.
	NULInName
	// DuplicateName: an object has two members of the same name.
	DuplicateName
	// TooManyDigits: a number has more significant digits than
	// Limits.MaxDigits.
	TooManyDigits
	// ExponentRange: a number is too large, too close to zero, or written
	// with too many places for Limits.MaxExponent.
	ExponentRange
)

// String returns the reason in words, lower case. It returns "unknown reason"
// for a value that is none of the constants.
func (r Reason) String() string {
	switch r {
	case Syntax:
		return "invalid syntax"
	case Empty:
		return "no value"
	case TooLarge:
		return "text too large"
	case TooDeep:
		return "nested too deep"
	case NotObject:
		return "value is not an object"
	case InvalidUTF8:
		return "invalid utf-8"
	case ControlChar:
		return "unescaped control character"
	case LoneSurrogate:
		return "lone surrogate"
	case NULInName:
		return "nul character in member name"
	case DuplicateName:
		return "duplicate member name"
	case TooManyDigits:
		return "too many significant digits"
	case ExponentRange:
		return "exponent out of range"
	default:
		return "unknown reason"
	}
}

// Error is the error of [Check] and [CheckObject]; both return it as *Error.
// It holds no part of the text that was refused, so it can be logged.
type Error struct {
	// Offset is the index of the byte at fault: of the opening quote for a
	// member name, of the first byte for a number, of the backslash for an
	// escape, of the bracket for depth. It is the length of a text that
	// ends too early, and Limits.MaxBytes for one that is too large.
	Offset int
	// Reason is the rule that was broken. A text that breaks several rules
	// is refused for the first one met, reading from the start.
	Reason Reason
}

// Error returns the reason and the offset, lower case, without any byte of the
// refused text.
func (e *Error) Error() string {
	return "jsonvalue: " + e.Reason.String() + " at offset " + strconv.Itoa(e.Offset)
}
