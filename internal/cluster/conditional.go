package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Conditional says which prompts a decode worker prefills itself although there are
// prefill workers.
type Conditional struct {
	Rule string // one of ConditionalRules
	// Tokens and Ratio are those of isl-bounding: a prompt is prefilled by the decode worker
	// if it has fewer uncached tokens than Tokens, and they are less than Ratio of the prompt.
	Tokens int
	Ratio  float64
	// PrefillBusy is how much work makes a prefill worker busy: waiting prompt tokens,
	// relative to the most tokens of one step.
	PrefillBusy float64
	// DecodeBusy is the share of its KV pool above which a decode worker prefills nothing
	// that rules with names of Dynamo give it; 0 for no such guard.
	DecodeBusy float64
}

// The rules.
const (
	ConditionalOff         = "off" // nothing is prefilled by decode workers
	ConditionalThreshold   = "threshold"
	ConditionalISLBounding = "isl-bounding"
	ConditionalPrefillLoad = "prefill-load"
	ConditionalISLOrLoad   = "isl-or-load"
	ConditionalSLO         = "slo"
	ConditionalLeastDelay  = "least-delay" // the default
)

// ComparesSpeeds reports whether the rule needs the speeds of the workers. The rule
// threshold decides while one is unknown.
func (c Conditional) ComparesSpeeds() bool {
	return c.Rule == ConditionalLeastDelay || c.Rule == ConditionalSLO
}

// ConditionalRules lists the rules.
func ConditionalRules() []string {
	return []string{ConditionalLeastDelay, ConditionalThreshold, ConditionalISLBounding, ConditionalPrefillLoad, ConditionalISLOrLoad, ConditionalSLO, ConditionalOff}
}

// ConditionalForm says what ParseConditional reads.
const ConditionalForm = "least-delay, threshold, isl-bounding, prefill-load, isl-or-load, slo, off, or a JSON object like " +
	`{"policy":"isl_bounding","eff_isl_threshold":2048,"eff_isl_ratio_threshold":0.7}`

// ParseConditional reads the name of a rule, or the JSON object by which Dynamo configures
// one. Dynamo's names, with underscores, and its switch, true or false, are read, too.
func ParseConditional(text string) (Conditional, error) {
	c := Conditional{Rule: text, Tokens: 2048, Ratio: 0.7, PrefillBusy: 1} // Dynamo's defaults, as far as it has them
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		if err := c.read(text); err != nil {
			return Conditional{}, fmt.Errorf("%w; expected %s", err, ConditionalForm)
		}
	}
	c.Rule = strings.ReplaceAll(c.Rule, "_", "-")
	switch c.Rule {
	case "":
		c.Rule = ConditionalLeastDelay
	case "true", "1":
		c.Rule = ConditionalISLBounding
	case "false", "0":
		c.Rule = ConditionalOff
	}
	if !slices.Contains(ConditionalRules(), c.Rule) {
		return Conditional{}, fmt.Errorf("no rule %q; expected %s", c.Rule, ConditionalForm)
	}
	return c, nil
}

func (c *Conditional) read(text string) error {
	// A null leaves the default.
	in := struct {
		Policy      string  `json:"policy"`
		Tokens      int     `json:"eff_isl_threshold"`
		Ratio       float64 `json:"eff_isl_ratio_threshold"`
		PrefillBusy float64 `json:"prefill_busy_threshold"`
		DecodeBusy  float64 `json:"decode_busy_threshold"`
	}{ConditionalISLBounding, c.Tokens, c.Ratio, c.PrefillBusy, c.DecodeBusy}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("read the JSON object: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read the JSON object: text follows it")
	}
	if in.Tokens < 0 || in.Ratio < 0 || in.PrefillBusy < 0 || in.DecodeBusy < 0 {
		return errors.New("a threshold is negative")
	}
	*c = Conditional{in.Policy, in.Tokens, in.Ratio, in.PrefillBusy, in.DecodeBusy}
	return nil
}
