package fairqueue

import (
	"container/heap"
	"math"
)

// maxIdle is the number of tenants without entries that a Queue remembers. Beyond it, the
// one with the smallest counter is forgotten.
const maxIdle = 4096

// Queue holds entries of several tenants. The zero value is empty and ready. It is not
// safe for concurrent use. Pushing, taking and charging cost O(log tenants + log entries of
// the tenant).
type Queue[T any] struct {
	tenants map[string]*tenant[T]
	waiting ordered[T] // tenants with entries
	idle    ordered[T] // tenants without entries whose counters exceed virtual
	virtual float64    // counter of the tenant served last; never decreases
	size    int
	cost    int64 // of all entries
	arrived uint64
	pushed  int64 // number of the last entry
	front   int64 // and of the last one that was put before the others
}

type tenant[T any] struct {
	name        string
	counter     float64
	arrived     uint64 // since when it waits; settles ties
	due         entries[T]
	first, last *Entry[T] // by arrival
	size        int
	cost        int64
	at          int         // index in the heap
	in          *ordered[T] // the heap that it is in
}

// Push appends an item to those of its tenant.
func (q *Queue[T]) Push(tenant string, item T, cost int64) *Entry[T] {
	return q.Insert(tenant, item, cost, 0)
}

// Insert adds an item that is served before the tenant's items which are due later, and
// after those which are due earlier or came first with the same due.
func (q *Queue[T]) Insert(tenant string, item T, cost int64, due float64) *Entry[T] {
	t := q.activate(tenant)
	q.pushed++
	e := &Entry[T]{Item: item, Cost: cost, tenant: t, prev: t.last, due: due, number: q.pushed}
	heap.Push(&t.due, e)
	if t.last != nil {
		t.last.next = e
	} else {
		t.first = e
	}
	t.last = e
	q.count(t, 1, cost)
	return e
}

// PushFront puts an item before the others of its tenant. It is for an item that was in
// use and lost its place.
func (q *Queue[T]) PushFront(tenant string, item T, cost int64) *Entry[T] {
	t := q.activate(tenant)
	q.front--
	e := &Entry[T]{Item: item, Cost: cost, tenant: t, next: t.first, due: math.Inf(-1), number: q.front}
	heap.Push(&t.due, e)
	if t.first != nil {
		t.first.prev = e
	} else {
		t.last = e
	}
	t.first = e
	q.count(t, 1, cost)
	return e
}

// Remove removes an entry that is still in the queue, without counting it as served.
func (q *Queue[T]) Remove(e *Entry[T]) bool {
	if e == nil || e.tenant == nil {
		return false
	}
	t := e.tenant
	heap.Remove(&t.due, e.at)
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		t.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		t.last = e.prev
	}
	e.tenant, e.prev, e.next = nil, nil, nil
	q.count(t, -1, -e.Cost)
	if t.size == 0 {
		q.move(t, &q.idle)
		q.tidy()
	}
	return true
}

// Take removes an entry in order to serve it.
func (q *Queue[T]) Take(e *Entry[T]) {
	if t := e.tenant; t != nil {
		q.virtual = max(q.virtual, t.counter)
	}
	q.Remove(e)
}

// Len returns the number of entries.
func (q *Queue[T]) Len() int { return q.size }

// Cost returns the sum of the costs of all entries.
func (q *Queue[T]) Cost() int64 { return q.cost }

// Of returns the number of a tenant's entries, and the sum of their costs.
func (q *Queue[T]) Of(tenant string) (n int, cost int64) {
	if t := q.tenants[tenant]; t != nil {
		return t.size, t.cost
	}
	return 0, 0
}

// Tenants returns the number of tenants with entries.
func (q *Queue[T]) Tenants() int { return len(q.waiting.list) }

// Next returns the first entry due of the tenant whose turn it is, or nil if the queue is
// empty.
func (q *Queue[T]) Next() *Entry[T] {
	if len(q.waiting.list) == 0 {
		return nil
	}
	return q.waiting.list[0].due[0]
}

// First returns the first entry due of a tenant, or nil if it has none.
func (q *Queue[T]) First(tenant string) *Entry[T] {
	if t := q.tenants[tenant]; t != nil && len(t.due) > 0 {
		return t.due[0]
	}
	return nil
}

// Longest returns the newest entry of the tenant with the most entries, and their number;
// nil if the queue is empty. It takes linear time in the number of tenants.
func (q *Queue[T]) Longest() (*Entry[T], int) {
	var most *tenant[T]
	for _, t := range q.waiting.list {
		if most == nil || t.size > most.size {
			most = t
		}
	}
	if most == nil {
		return nil, 0
	}
	return most.last, most.size
}

// Charge adds work to a tenant's counter, whether or not it has entries.
func (q *Queue[T]) Charge(tenant string, work float64) {
	t := q.tenants[tenant]
	if t == nil {
		t = q.add(tenant, &q.idle)
	}
	t.counter += work
	heap.Fix(t.in, t.at)
	if t.in == &q.idle {
		q.tidy()
	}
}

func (q *Queue[T]) count(t *tenant[T], n int, cost int64) {
	t.size += n
	t.cost += cost
	q.size += n
	q.cost += cost
}

// activate returns the tenant with that name, after moving it to those that wait.
func (q *Queue[T]) activate(name string) *tenant[T] {
	t := q.tenants[name]
	switch {
	case t == nil:
		t = q.add(name, &q.waiting)
	case t.in == &q.idle:
		q.arrived++
		t.arrived = q.arrived
		t.counter = max(t.counter, q.virtual)
		q.move(t, &q.waiting)
	}
	return t
}

func (q *Queue[T]) add(name string, to *ordered[T]) *tenant[T] {
	if q.tenants == nil {
		q.tenants = map[string]*tenant[T]{}
	}
	q.arrived++
	t := &tenant[T]{name: name, counter: q.virtual, arrived: q.arrived, in: to}
	q.tenants[name] = t
	heap.Push(to, t)
	return t
}

func (q *Queue[T]) move(t *tenant[T], to *ordered[T]) {
	heap.Remove(t.in, t.at)
	t.in = to
	heap.Push(to, t)
}

// tidy forgets idle tenants whose counters carry no information: they would start at
// virtual anyway.
func (q *Queue[T]) tidy() {
	for len(q.idle.list) > 0 && (q.idle.list[0].counter <= q.virtual || len(q.idle.list) > maxIdle) {
		t := heap.Pop(&q.idle).(*tenant[T])
		delete(q.tenants, t.name)
	}
}

// ordered is a heap of tenants, with the smallest counter first.
type ordered[T any] struct{ list []*tenant[T] }

func (o *ordered[T]) Len() int { return len(o.list) }

func (o *ordered[T]) Less(i, j int) bool {
	a, b := o.list[i], o.list[j]
	if a.counter != b.counter {
		return a.counter < b.counter
	}
	return a.arrived < b.arrived
}

func (o *ordered[T]) Swap(i, j int) {
	o.list[i], o.list[j] = o.list[j], o.list[i]
	o.list[i].at, o.list[j].at = i, j
}

func (o *ordered[T]) Push(x any) {
	t := x.(*tenant[T])
	t.at = len(o.list)
	o.list = append(o.list, t)
}

func (o *ordered[T]) Pop() any {
	last := len(o.list) - 1
	t := o.list[last]
	o.list[last] = nil
	o.list = o.list[:last]
	return t
}
