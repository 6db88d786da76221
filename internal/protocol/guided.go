package protocol

// Guided constrains the text of an output. The fields are those of a constraint of
// package grammar, which says what they mean.
type Guided struct {
	Kind    string   `json:"kind"`
	Text    string   `json:"text"`
	Choices []string `json:"choices"`
	Lax     bool     `json:"lax"`
	Compact bool     `json:"compact"`
	// After, if not empty, are the tokens of which one ends the reasoning that comes
	// first: only what follows is constrained.
	After []uint32 `json:"after"`
}
