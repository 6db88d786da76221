//go:build !amd64 && !arm64

package kernel

func (l Level) hasBF16() bool { return false }

func (l Level) fastBF16() bool { return false }

func (l Level) roundBF16(dst []uint16, src []float32) { roundBF16Go(dst, src) }

func (l Level) pairsBF16(c *CallBF16) { pairsBF16Go(c) }

func (l Level) tilesBF16(_ int, c *CallBF16) { panic("no tiles") }
