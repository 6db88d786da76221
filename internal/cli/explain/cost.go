package explain

import (
	"math"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// secondBest returns the place of the eligible candidate that was the cheapest beside the
// chosen one; -1 if there is none, or no cost to compare.
func secondBest(d *cluster.RouterDecision) int {
	at := -1
	for i, c := range d.Candidates {
		if c.Excluded != "" || c.Worker == d.Chosen || math.IsNaN(c.Cost) || math.IsInf(c.Cost, 0) {
			continue
		}
		if at < 0 || c.Cost < d.Candidates[at].Cost {
			at = i
		}
	}
	return at
}

func costText(cost float64) string {
	if math.IsNaN(cost) || math.IsInf(cost, 0) {
		return "-"
	}
	return decimals(units(cost))
}

func signed(difference float64) string {
	text := costText(difference)
	if difference >= 0 {
		text = "+" + text
	}
	return text
}

// termsText lists the terms of a cost. They add up to the cost as printed: the last term
// takes what rounding leaves.
func termsText(terms []cluster.CostTerm, cost float64) string {
	if costText(cost) == "-" || len(terms) == 0 {
		return "-"
	}
	rest := units(cost)
	var parts []string
	for i, t := range terms {
		n := units(t.Value)
		if i == len(terms)-1 {
			n = rest
		}
		rest -= n
		parts = append(parts, t.Name+" "+decimals(n))
	}
	return strings.Join(parts, " + ")
}

// costUnits is how many steps of a printed cost are one.
const costUnits = 1000

func units(v float64) int64 { return int64(math.Round(v * costUnits)) }

// decimals prints so many steps, with at least one place after the point.
func decimals(n int64) string {
	text := strings.TrimRight(strconv.FormatFloat(float64(n)/costUnits, 'f', 3, 64), "0")
	if strings.HasSuffix(text, ".") {
		text += "0"
	}
	return text
}
