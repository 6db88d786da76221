package cells

// Fit returns the items that stay in width cells. need is how many cells the given items
// take together. Of the others the one with the lowest rank leaves first; rank 0 never
// leaves.
func Fit[T any](items []T, width int, need func([]T) int, rank func(T) int) []T {
	stay := append([]T(nil), items...)
	for need(stay) > width {
		out := -1
		for i, item := range stay {
			if r := rank(item); r > 0 && (out < 0 || r < rank(stay[out])) {
				out = i
			}
		}
		if out < 0 {
			break
		}
		stay = append(stay[:out], stay[out+1:]...)
	}
	return stay
}
