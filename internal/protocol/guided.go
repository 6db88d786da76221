package protocol

// Guided constrains the text of an output. The fields mirror those of a constraint in
// package grammar, which explains them.
type Guided struct {
	Kind    string   `json:"kind"`
	Text    string   `json:"text"`
	Choices []string `json:"choices"`
	Lax     bool     `json:"lax"`
	Compact bool     `json:"compact"`
	// After lists the tokens of which any one ends the reasoning at the beginning of an
	// output. The constraint applies only after it. Empty constrains the whole output.
	After []uint32 `json:"after"`
}
