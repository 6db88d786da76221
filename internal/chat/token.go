package chat

// TokenBytes returns the bytes that a token contributes to a text, or nil for an unknown
// id. They need not be whole characters.
func (p *Processor) TokenBytes(id uint32) []byte { return p.tok.TokenBytes(id) }

// EncodeText returns the ids of a text inside an output, without special tokens around
// it.
func (p *Processor) EncodeText(text string) []uint32 { return p.tok.Encode(text, false) }
