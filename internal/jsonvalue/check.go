// Package jsonvalue decides whether an encoded JSON text can be kept by every
// store with its value unchanged, and whether two such texts have the same
// value. It works on the encoded bytes alone: numbers are decimals, never
// binary floating point, and no text is decoded into Go values.
//
// [Check] is the gate. The other functions of the package expect texts it has
// let through; on other input they return something unspecified, but they
// neither panic nor run for longer than the input is long.
package jsonvalue

// The limits that stand where a field of Limits is zero.
const (
	defaultMaxDepth    = 90
	defaultMaxDigits   = 34
	defaultMaxExponent = 6000
)

// Limits bounds what [Check] lets through. The zero value of a field, or a
// negative one, stands for the field's default, so the zero Limits and
// [DefaultLimits] mean the same.
type Limits struct {
	// MaxBytes is the largest length of the text, whitespace included. The
	// default is no limit.
	MaxBytes int
	// MaxDepth is the largest number of arrays and objects that are open at
	// once. A scalar at the top has depth 0, [] and {} have depth 1, [[]]
	// has depth 2. The default is 90.
	MaxDepth int
	// MaxDigits is the largest number of significant digits of a number,
	// counted as [Check] describes. The default is 34.
	MaxDigits int
	// MaxExponent bounds the exponent of a number on both sides of zero,
	// counted as [Check] describes. The default is 6000. Exponents that are
	// written with 13 digits or more are refused under any limit.
	MaxExponent int
}

// DefaultLimits returns the limits every store can keep: depth 90, 34
// significant digits, exponents within ±6000, any size.
func DefaultLimits() Limits { return Limits{}.withDefaults() }

func (l Limits) withDefaults() Limits {
	l.MaxBytes = max(l.MaxBytes, 0)
	if l.MaxDepth <= 0 {
		l.MaxDepth = defaultMaxDepth
	}
	if l.MaxDigits <= 0 {
		l.MaxDigits = defaultMaxDigits
	}
	if l.MaxExponent <= 0 {
		l.MaxExponent = defaultMaxExponent
	}
	return l
}

// Check returns nil when data is exactly one JSON value of RFC 8259, with or
// without whitespace around it, that also obeys these rules:
//
//   - Strings are valid UTF-8 without unescaped control characters, and
//     surrogates in \u escapes come in matching pairs.
//   - The character U+0000 may be in a string value but not in a member name.
//   - The names of an object differ from each other after unescaping: "a" and
//     "\u0061" are the same name. Names are compared by code points, with
//     neither case folding nor Unicode normalisation.
//   - Size, depth and numbers are within l.
//
// The significant digits of a number run from its first to its last digit that
// is not zero, across the decimal point. The sign, the exponent and the zeros
// outside of that run do not count: 1e2, 1.0 and 0.001 have one digit, and so
// has a 1 followed by 38 zeros; 1001 has four; 0, -0 and 0.00 have none.
//
// The exponent of a number is that of its scientific notation with one
// significant digit in front of the point: 4 for 12300, 3 for 0.012e5, -1 for
// 0.1. Zero has the exponent it is written with. Zeros at the end, though not
// significant, are places that a decimal store keeps: the last place written
// must not be below 10 to the power of -(MaxExponent+MaxDigits), which the
// first two rules imply for a number without such zeros.
//
// The error is an [*Error]. Time is linear in len(data), and memory in the
// depth and in the names of the objects open at once; objects of few members
// whose names have no escapes cost no allocation.
func Check(data []byte, l Limits) error {
	return check(data, l, false)
}

// CheckObject is [Check] for a text whose top value must be an object. A text
// that begins with any other token is refused with the reason [NotObject],
// whatever follows.
func CheckObject(data []byte, l Limits) error {
	return check(data, l, true)
}

func check(data []byte, l Limits, object bool) error {
	l = l.withDefaults()
	if l.MaxBytes > 0 && len(data) > l.MaxBytes {
		return &Error{Offset: l.MaxBytes, Reason: TooLarge}
	}
	s := scanner{lexer: lexer{data: data}, limits: l, names: names{data: data}}
	if at, reason := s.run(object); reason != 0 {
		return &Error{Offset: at, Reason: reason}
	}
	return nil
}
