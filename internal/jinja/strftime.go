package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats a local time without a zone, as Python formats
// datetime.now(), with the C library's flags - _ 0 ^ between % and the letter.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		start := i
		i++
		flag := byte(0)
		for i+1 < len(format) && strings.IndexByte("-_0^#", format[i]) >= 0 {
			flag = format[i]
			i++
		}
		text, ok := timePart(t, format[i], flag)
		if !ok {
			text = format[start : i+1]
		}
		if flag == '^' {
			text = strings.ToUpper(text)
		}
		b.WriteString(text)
	}
	return b.String()
}

// timePart formats one conversion.
func timePart(t time.Time, c, flag byte) (string, bool) {
	num := func(v, width int, pad byte) (string, bool) {
		switch flag {
		case '-':
			return fmt.Sprint(v), true
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
		s := fmt.Sprint(v)
		return strings.Repeat(string(pad), max(width-len(s), 0)) + s, true
	}
	hour12 := (t.Hour()+11)%12 + 1
	year, week := t.ISOWeek()
	switch c {
	case 'Y':
		return num(t.Year(), 1, '0')
	case 'C':
		return num(t.Year()/100, 2, '0')
	case 'y':
		return num(t.Year()%100, 2, '0')
	case 'm':
		return num(int(t.Month()), 2, '0')
	case 'd':
		return num(t.Day(), 2, '0')
	case 'e':
		return num(t.Day(), 2, ' ')
	case 'H':
		return num(t.Hour(), 2, '0')
	case 'k':
		return num(t.Hour(), 2, ' ')
	case 'I':
		return num(hour12, 2, '0')
	case 'l':
		return num(hour12, 2, ' ')
	case 'M':
		return num(t.Minute(), 2, '0')
	case 'S':
		return num(t.Second(), 2, '0')
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'j':
		return num(t.YearDay(), 3, '0')
	case 'u':
		return num((int(t.Weekday())+6)%7+1, 1, '0')
	case 'w':
		return num(int(t.Weekday()), 1, '0')
	case 'U':
		return num((t.YearDay()+6-int(t.Weekday()))/7, 2, '0')
	case 'W':
		return num((t.YearDay()+6-(int(t.Weekday())+6)%7)/7, 2, '0')
	case 'V':
		return num(week, 2, '0')
	case 'G':
		return num(year, 1, '0')
	case 'g':
		return num(year%100, 2, '0')
	case 's':
		return num(int(t.Unix()), 1, '0')
	case 'z', 'Z':
		return "", true
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	}
	if layout, ok := timeLayouts[c]; ok {
		return t.Format(layout), true
	}
	return "", false
}

// timeLayouts are the conversions that need no numbers of their own.
var timeLayouts = map[byte]string{
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
