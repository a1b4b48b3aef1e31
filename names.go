package relaybus

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the most bytes of names, ids and keys: it fits an index entry of
// every store.
const maxName = 255

// checkText returns what is wrong with a name, id or key, or "".
func checkText(text string, most int) string {
	switch {
	case text == "":
		return "is empty"
	case len(text) > most:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(text), most)
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "has a control character"
	default:
		return ""
	}
}

// checkTypeName returns what is wrong with the name of an event type, or "".
func checkTypeName(name string) string {
	if reason := checkText(name, maxName); reason != "" {
		return reason
	}
	if strings.ContainsFunc(name, unicode.IsSpace) {
		return "has white space"
	}
	if strings.Contains(name, "*") {
		return `has a "*", which only patterns of handlers may have`
	}
	return ""
}

// checkPattern returns what is wrong with what a handler subscribes to, or "".
func checkPattern(pattern string) string {
	if pattern == "*" {
		return ""
	}
	if prefix, ok := strings.CutSuffix(pattern, ".*"); ok {
		return checkTypeName(prefix)
	}
	return checkTypeName(pattern)
}
