package fairqueue

// Entry is one item of a Queue. Its owner may remove it again.
type Entry[T any] struct {
	Item T
	// Cost is the size of the item while it waits, in any unit; see Queue.Cost.
	Cost       int64
	tenant     *tenant[T] // nil while it is in no queue
	prev, next *Entry[T]  // of the tenant, in order of arrival
	due        float64
	number     int64 // settles ties of due
	at         int   // index in the tenant's entries
}

// entries is a heap of the entries of one tenant, with the first one due first.
type entries[T any] []*Entry[T]

func (es entries[T]) Len() int { return len(es) }

func (es entries[T]) Less(i, j int) bool {
	if es[i].due != es[j].due {
		return es[i].due < es[j].due
	}
	return es[i].number < es[j].number
}

func (es entries[T]) Swap(i, j int) {
	es[i], es[j] = es[j], es[i]
	es[i].at, es[j].at = i, j
}

func (es *entries[T]) Push(x any) {
	e := x.(*Entry[T])
	e.at = len(*es)
	*es = append(*es, e)
}

func (es *entries[T]) Pop() any {
	last := len(*es) - 1
	e := (*es)[last]
	(*es)[last] = nil
	*es = (*es)[:last]
	return e
}
