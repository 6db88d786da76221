package launch

import (
	"encoding/json"
	"strconv"
	"strings"
)

// maxComplaint bounds the lines that follow the first one of an error.
const maxComplaint = 6

// complaint finds the last error in what a program printed: a crash, its own last
// words ("dynamod: ..."), an error in its log, else the last line.
func complaint(text string) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	last := func(match func(string) bool) int {
		for i := len(lines) - 1; i >= 0; i-- {
			if match(lines[i]) {
				return i
			}
		}
		return -1
	}
	prefix := func(ps ...string) func(string) bool {
		return func(l string) bool {
			for _, p := range ps {
				if strings.HasPrefix(l, p) {
					return true
				}
			}
			return false
		}
	}
	if i := last(prefix("panic: ", "fatal error: ")); i >= 0 {
		return []string{Program + " crashed: " + lines[i]}
	}
	if i := last(prefix(Program + ": ")); i >= 0 {
		out := []string{strings.TrimPrefix(lines[i], Program+": ")}
		for _, l := range lines[i+1:] {
			if !strings.HasPrefix(l, "  ") || len(out) > maxComplaint {
				break
			}
			out = append(out, strings.TrimSpace(l))
		}
		return out
	}
	if i := last(func(l string) bool { return logged(l) != "" }); i >= 0 {
		return []string{logged(lines[i])}
	}
	if l := strings.TrimSpace(lines[len(lines)-1]); l != "" {
		return []string{l}
	}
	return nil
}

// logged returns message and cause of a log record of level error, text or JSON.
func logged(line string) string {
	var msg, cause string
	if strings.HasPrefix(line, "{") {
		var r struct{ Level, Msg, Error string }
		if json.Unmarshal([]byte(line), &r) != nil || r.Level != "ERROR" {
			return ""
		}
		msg, cause = r.Msg, r.Error
	} else {
		attrs := attributes(line)
		if attrs["level"] != "ERROR" {
			return ""
		}
		msg, cause = attrs["msg"], attrs["error"]
	}
	if cause == "" {
		return msg
	}
	return msg + ": " + cause
}

// attributes reads key=value pairs as log/slog writes them, values quoted as needed.
func attributes(line string) map[string]string {
	out := map[string]string{}
	for line != "" {
		key, rest, ok := strings.Cut(line, "=")
		if !ok || strings.ContainsAny(key, "\" ") {
			break
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				break
			}
			value, _ = strconv.Unquote(quoted)
			rest = rest[len(quoted):]
		} else {
			value, _, _ = strings.Cut(rest, " ")
			rest = rest[len(value):]
		}
		out[key] = value
		line = strings.TrimLeft(rest, " ")
	}
	return out
}
