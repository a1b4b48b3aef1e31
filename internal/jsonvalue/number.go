package jsonvalue

import "bytes"

// maxWrittenExponent keeps sums of an exponent and a length far from overflow.
// Exponents beyond it are not told apart.
const maxWrittenExponent = 1_000_000_000_000 - 1

// decimal is a number token, normalised without copying.
type decimal struct {
	negative bool
	// digits runs from the first to the last digit that is not zero; there
	// may be a point in between. It is empty for zero.
	digits []byte
	// first and last are the powers of ten of the first significant digit
	// and of the last digit written. For zero, first is the exponent as
	// written.
	first, last int64
	// huge: the exponent is beyond maxWrittenExponent, first and last mean
	// nothing.
	huge bool
}

// parseDecimal reads a valid number token.
func parseDecimal(b []byte) decimal {
	var d decimal
	if b[0] == '-' {
		d.negative = true
		b = b[1:]
	}
	var exponent int64
	point := -1
	for i, c := range b {
		if c == '.' {
			point = i
		} else if c == 'e' || c == 'E' {
			exponent, d.huge = parseExponent(b[i+1:])
			b = b[:i]
			break
		}
	}
	whole := point
	d.last = exponent
	if point < 0 {
		whole = len(b)
	} else {
		d.last -= int64(len(b) - point - 1)
	}
	start, end := significant(b)
	d.digits = b[start:end]
	switch {
	case start == end:
		d.first = exponent
	case start < whole:
		d.first = exponent + int64(whole-start-1)
	default:
		d.first = exponent - int64(start-whole)
	}
	return d
}

// significant returns where the digits of b that are not zero begin and end.
func significant(b []byte) (start, end int) {
	end = len(b)
	for start < end && (b[start] == '0' || b[start] == '.') {
		start++
	}
	for end > start && (b[end-1] == '0' || b[end-1] == '.') {
		end--
	}
	return start, end
}

func parseExponent(b []byte) (exponent int64, huge bool) {
	sign := int64(1)
	switch b[0] {
	case '-':
		sign = -1
		b = b[1:]
	case '+':
		b = b[1:]
	}
	for _, c := range b {
		exponent = exponent*10 + int64(c-'0')
		if exponent > maxWrittenExponent {
			return 0, true
		}
	}
	return sign * exponent, false
}

func (d decimal) check(l Limits) Reason {
	count := len(d.digits)
	// Few numbers are long; only those need the search for the point.
	if count > l.MaxDigits && bytes.IndexByte(d.digits, '.') >= 0 {
		count--
	}
	limit := int64(l.MaxExponent)
	switch {
	case count > l.MaxDigits:
		return TooManyDigits
	case d.huge, d.first > limit, d.first < -limit:
		return ExponentRange
	// The sum with the limit cannot overflow as last is negative here.
	case d.last < 0 && d.last+limit < -int64(l.MaxDigits):
		return ExponentRange
	}
	return 0
}

// equalNumber compares two valid number tokens as decimals.
func equalNumber(a, b []byte) bool {
	x, y := parseDecimal(a), parseDecimal(b)
	if len(x.digits) == 0 || len(y.digits) == 0 {
		return len(x.digits) == len(y.digits)
	}
	if x.huge || y.huge {
		return bytes.Equal(a, b)
	}
	return x.negative == y.negative && x.first == y.first && equalDigits(x.digits, y.digits)
}

// equalDigits compares two runs of digits without regard to points in them;
// neither run begins or ends with one.
func equalDigits(a, b []byte) bool {
	for len(a) > 0 && len(b) > 0 {
		if a[0] == '.' {
			a = a[1:]
		}
		if b[0] == '.' {
			b = b[1:]
		}
		if a[0] != b[0] {
			return false
		}
		a, b = a[1:], b[1:]
	}
	return len(a) == len(b)
}
