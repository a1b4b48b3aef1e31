package dispatch

import (
	"strings"
	"unicode/utf8"
)

// maxText is how many bytes of an error are kept with a delivery.
const maxText = 4096

// Text returns the text of an error as every store can keep it: valid UTF-8
// without NUL, at most 4,096 bytes. An Error method that panics gives a text
// that says so.
func Text(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "an error whose Error method panics"
		}
	}()
	text = strings.ToValidUTF8(err.Error(), "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	const mark = "… (cut)"
	cut := maxText - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
