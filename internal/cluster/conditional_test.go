package cluster

import (
	"strings"
	"testing"
)

func TestParseConditional(t *testing.T) {
	base := Conditional{Tokens: 2048, Ratio: 0.7, PrefillBusy: 1}
	with := func(rule string, change func(*Conditional)) Conditional {
		c := base
		c.Rule = rule
		if change != nil {
			change(&c)
		}
		return c
	}
	for text, want := range map[string]Conditional{
		"":             with(ConditionalLeastDelay, nil),
		"least_delay":  with(ConditionalLeastDelay, nil),
		"threshold":    with(ConditionalThreshold, nil),
		"off":          with(ConditionalOff, nil),
		"slo":          with(ConditionalSLO, nil),
		"isl_bounding": with(ConditionalISLBounding, nil),
		"isl-or-load":  with(ConditionalISLOrLoad, nil),
		"true":         with(ConditionalISLBounding, nil),
		"1":            with(ConditionalISLBounding, nil),
		"false":        with(ConditionalOff, nil),
		"{}":           with(ConditionalISLBounding, nil),
		`{"policy":"isl_bounding","eff_isl_threshold":2048,"eff_isl_ratio_threshold":0.7,"prefill_busy_threshold":null,"decode_busy_threshold":null}`: with(ConditionalISLBounding, nil),
		` {"policy":"isl_or_load","eff_isl_threshold":100,"eff_isl_ratio_threshold":0.5,"prefill_busy_threshold":2,"decode_busy_threshold":0.8}`: with(ConditionalISLOrLoad, func(c *Conditional) {
			c.Tokens, c.Ratio, c.PrefillBusy, c.DecodeBusy = 100, 0.5, 2, 0.8
		}),
	} {
		if got, err := ParseConditional(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, why := range map[string]string{
		"sometimes":                `no rule "sometimes"`,
		`{"policy":"sometimes"}`:   `no rule "sometimes"`,
		`{"threshold":7}`:          "unknown field",
		`{"eff_isl_threshold":-1}`: "negative",
		`{"eff_isl_threshold":1`:   "read the JSON object",
		`{} {}`:                    "text follows",
	} {
		if got, err := ParseConditional(text); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "eff_isl_threshold") {
			t.Errorf("%q: %+v, %v; want %s", text, got, err, why)
		}
	}
}
