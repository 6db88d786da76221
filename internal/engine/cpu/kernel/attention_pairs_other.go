//go:build !amd64

package kernel

func (l Level) scorePairs(m int, c *Score) {
	_, groups := l.ScoreShape(m)
	scorePairsGo(m, groups, c)
}

func (l Level) softmaxPairs(weights *uint16, scores *float32, groups int, head, tail uint32) (top, norm float32) {
	return softmaxPairsGo(weights, scores, groups, head, tail)
}

func (l Level) mixPairs(rows, width int, c *Mix) { mixPairsGo(rows, width, c) }
