package judge

import "fmt"

// Results of checks.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
	Skip = "skip" // nothing to check
)

// Finding is the result of one check.
type Finding struct {
	Name   string         `json:"name"`
	Group  string         `json:"group"`
	Status string         `json:"status"`
	Found  string         `json:"found"`
	Fix    string         `json:"fix,omitempty"`
	Data   map[string]any `json:"data,omitempty"` // the numbers behind what was found
	TookMS float64        `json:"took_ms"`
}

// good, poor, bad and skipped make findings.
func good(format string, args ...any) Finding {
	return Finding{Status: OK, Found: fmt.Sprintf(format, args...)}
}

func poor(fix, format string, args ...any) Finding {
	return Finding{Status: Warn, Fix: fix, Found: fmt.Sprintf(format, args...)}
}

// Bad is a finding about what does not work; fix says what to do.
func Bad(fix, format string, args ...any) Finding {
	return Finding{Status: Fail, Fix: fix, Found: fmt.Sprintf(format, args...)}
}

// Skipped is a finding about what there was not to check.
func Skipped(format string, args ...any) Finding {
	return Finding{Status: Skip, Found: fmt.Sprintf(format, args...)}
}

// With adds a number to a finding.
func (f Finding) With(key string, value any) Finding {
	if f.Data == nil {
		f.Data = map[string]any{}
	}
	f.Data[key] = value
	return f
}

// firstOf prints the first of some texts and how many more there are.
func firstOf(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return fmt.Sprintf("%s; and %d more", texts[0], len(texts)-1)
}
