package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats a local time without a zone, as Python formats datetime.now(). A minus
// sign between % and a letter leaves out padding: %-d.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for {
		text, rest, found := strings.Cut(format, "%")
		b.WriteString(text)
		if !found {
			return b.String(), nil
		}
		bare := strings.HasPrefix(rest, "-")
		if bare {
			rest = rest[1:]
		}
		if rest == "" {
			return "", valueErrorf("strftime_now: the format ends after a %%")
		}
		part, ok := timePart(t, rest[0])
		if !ok {
			return "", valueErrorf("strftime_now: unknown conversion %%%.1s", rest)
		}
		if bare {
			if n, err := strconv.Atoi(strings.TrimSpace(part)); err == nil {
				part = strconv.Itoa(n)
			}
		}
		b.WriteString(part)
		format = rest[1:]
	}
}

// timePart formats one conversion.
func timePart(t time.Time, c byte) (string, bool) {
	switch c {
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay()), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	case '%':
		return "%", true
	case 'z', 'Z':
		return "", true // the time has no zone
	}
	layout, ok := timeLayouts[c]
	return t.Format(layout), ok
}

// timeLayouts are the conversions that Go's layouts know.
var timeLayouts = map[byte]string{
	'Y': "2006",
	'y': "06",
	'm': "01",
	'd': "02",
	'e': "_2",
	'H': "15",
	'I': "03",
	'M': "04",
	'S': "05",
	'a': "Mon",
	'A': "Monday",
	'b': "Jan",
	'h': "Jan",
	'B': "January",
	'p': "PM",
	'P': "pm",
	'c': "Mon Jan _2 15:04:05 2006",
	'x': "01/02/06",
	'D': "01/02/06",
	'X': "15:04:05",
	'T': "15:04:05",
	'R': "15:04",
	'r': "03:04:05 PM",
	'F': "2006-01-02",
}
