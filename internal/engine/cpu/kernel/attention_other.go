//go:build !amd64 && !arm64

package kernel

func (l Level) score(t KVType, m int, c *Score) {
	_, groups := l.ScoreShape(m)
	scoreGo(t, m, groups, c)
}

func (l Level) softmax(scores *float32, groups int, first, to float32) (top, norm float32) {
	return softmaxGo(scores, groups, first, to)
}

func (l Level) mix(t KVType, rows, width int, c *Mix) { mixGo(t, rows, width, c) }

func (l Level) narrowBF16(dst []uint16, src []float32) { narrowBF16Go(dst, src) }

func (l Level) largest(x []float32) float32 { return largestGo(x) }

func (l Level) roundI8(dst []int8, x []float32, factor float32) { roundI8Go(dst, x, factor) }
