package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
)

func next(t *testing.T, q *Queue[string]) string {
	t.Helper()
	e := q.Next()
	if e == nil {
		t.Fatal("the queue is empty")
	}
	q.Take(e)
	return e.Item
}

func TestOrderWithinATenant(t *testing.T) {
	var q Queue[string]
	q.Push("a", "a1", 3)
	q.Push("a", "a2", 4)
	gone := q.Push("a", "gone", 5)
	q.Push("a", "a3", 6)
	q.PushFront("a", "a0", 1)
	if !q.Remove(gone) || q.Remove(gone) {
		t.Error("an entry is removed once")
	}
	if n, cost := q.Of("a"); n != 4 || cost != 14 || q.Len() != 4 || q.Cost() != 14 {
		t.Errorf("%d entries for %d, %d of all for %d", n, cost, q.Len(), q.Cost())
	}
	for i := range 4 {
		if got, want := next(t, &q), fmt.Sprintf("a%d", i); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if q.Next() != nil || q.Len() != 0 || q.Cost() != 0 || q.Tenants() != 0 {
		t.Errorf("left: %d entries of %d tenants", q.Len(), q.Tenants())
	}
}

// Entries of a tenant are served as they are due, whatever the order in which they come and
// are taken out; the newest is still known by its arrival.
func TestOrderByDue(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var q Queue[string]
		type item struct {
			name string
			due  float64
		}
		var want []item
		var all []*Entry[string]
		newest := ""
		for i := range 20 {
			it := item{fmt.Sprint(i), float64(r.IntN(5))}
			all = append(all, q.Insert("a", it.name, 1, it.due))
			want, newest = append(want, it), it.name
		}
		if e, n := q.Longest(); n != 20 || e.Item != newest {
			t.Fatalf("the newest of %d is %s, want %s", n, e.Item, newest)
		}
		for range 5 {
			i := r.IntN(len(want))
			q.Remove(all[i])
			want, all = slices.Delete(want, i, i+1), slices.Delete(all, i, i+1)
		}
		q.PushFront("a", "front", 1)
		slices.SortStableFunc(want, func(a, b item) int { return cmp.Compare(a.due, b.due) })
		want = append([]item{{"front", -1}}, want...)
		for _, it := range want {
			if q.First("a") != q.Next() {
				t.Fatal("the first of the only tenant is not the next")
			}
			if got := next(t, &q); got != it.name {
				t.Fatalf("got %s, want %s of %v", got, it.name, want)
			}
		}
		if q.First("a") != nil || q.Next() != nil {
			t.Error("it is not empty")
		}
	}
}

// A tenant gains nothing over others by when its entries are due.
func TestDueIsWithinATenant(t *testing.T) {
	var q Queue[string]
	for i := range 40 {
		q.Insert("eager", "eager", 1, -1000-float64(i))
		q.Insert("patient", "patient", 1, float64(i))
	}
	got := map[string]int{}
	for range 20 {
		name := next(t, &q)
		q.Charge(name, 10)
		got[name]++
	}
	if got["eager"] != 10 || got["patient"] != 10 {
		t.Errorf("served %v", got)
	}
}

// A gate admits the first one due, whether its turn comes or the tenant has its share left.
func TestGateAdmitsTheFirstDue(t *testing.T) {
	g := NewGate(4, Limits{Waiting: 1000, Cost: 1000})
	all := reserve(t, g, "a", 8) // 4 are admitted, the others wait
	late, err := g.Reserve("a", 1, 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	early, err := g.Reserve("a", 1, 1, -5)
	if err != nil {
		t.Fatal(err)
	}
	all[0].Leave()
	if open(early) != 1 || open(late) != 0 || open(all) != 4 {
		t.Errorf("%d early, %d late and %d others are admitted", open(early), open(late), open(all))
	}
	for _, p := range append(all, early...) {
		p.Leave()
	}
	if open(late) != 1 {
		t.Error("the late one is never admitted")
	}
}

// What each tenant gets over time is the same, whatever it asks for at a time and
// however many entries it has.
func TestTenantsGetTheSame(t *testing.T) {
	var q Queue[float64]
	r := rand.New(rand.NewPCG(1, 2))
	size := map[string]float64{"small": 1, "large": 40, "many": 3}
	for range 3 {
		for name := range size {
			q.Push(name, size[name], 0)
		}
	}
	for range 5000 {
		q.Push("many", size["many"], 0)
	}
	got := map[string]float64{}
	for range 6000 {
		e := q.Next()
		name := e.tenant.name
		q.Take(e)
		q.Charge(name, e.Item)
		got[name] += e.Item
		if name != "many" || r.IntN(2) == 0 {
			q.Push(name, size[name], 0)
		}
	}
	for name, work := range got {
		if diff := work - got["many"]; diff > 41 || diff < -41 {
			t.Errorf("%s got %v, many got %v", name, work, got["many"])
		}
	}
}

// Who was away has no claim for the time that it did not ask; who took much just before
// is remembered as long as that matters.
func TestNobodySavesUp(t *testing.T) {
	var q Queue[string]
	for i := range 100 {
		q.Push("busy", "b", 0)
		if i > 0 {
			next(t, &q)
			q.Charge("busy", 10)
		}
	}
	for range 50 {
		q.Push("new", "n", 0)
		q.Push("busy", "b", 0)
	}
	served := map[string]int{}
	for range 20 {
		item := next(t, &q)
		served[item]++
		q.Charge(map[string]string{"b": "busy", "n": "new"}[item], 10)
	}
	if served["b"] < 9 || served["n"] < 9 {
		t.Errorf("served %v of two that ask for the same", served)
	}
	// One that leaves after it took much does not come back as a new one.
	q.Charge("greedy", 1000)
	q.Push("greedy", "g", 0)
	for range 10 {
		if item := next(t, &q); item == "g" {
			t.Fatal("greedy is served before those that got less")
		}
		q.Charge("new", 10)
	}
}

func TestIdleTenantsAreForgotten(t *testing.T) {
	var q Queue[int]
	for i := range 3 * maxIdle {
		name := fmt.Sprint(i)
		q.Take(q.Push(name, i, 0))
		q.Charge(name, 5)
	}
	if n := len(q.tenants); n > maxIdle {
		t.Errorf("%d tenants are remembered, at most %d may be", n, maxIdle)
	}
	q.Charge("x", 1e9)
	q.Take(q.Push("x", 0, 0)) // virtual time passes all of them
	q.Push("y", 0, 0)
	if n := len(q.tenants); n > 2 {
		t.Errorf("%d tenants are remembered of whom nothing matters any more", n)
	}
}

func TestLongest(t *testing.T) {
	var q Queue[string]
	if e, n := q.Longest(); e != nil || n != 0 {
		t.Errorf("of an empty queue: %v %d", e, n)
	}
	q.Push("a", "a1", 0)
	q.Push("b", "b1", 0)
	q.Push("b", "b2", 0)
	if e, n := q.Longest(); n != 2 || e.Item != "b2" {
		t.Errorf("%d entries, the newest is %v", n, e)
	}
}

// open counts the passes that are admitted.
func open(passes []*Pass) (n int) {
	for _, p := range passes {
		select {
		case <-p.open:
			n++
		default:
		}
	}
	return n
}

func reserve(t *testing.T, g *Gate, tenant string, n int) []*Pass {
	t.Helper()
	passes, err := g.Reserve(tenant, n, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	return passes
}

func TestGateGivesALoneTenantAll(t *testing.T) {
	g := NewGate(10, Limits{Waiting: 100, Cost: 1000})
	a := reserve(t, g, "a", 25)
	if n := open(a); n != 10 {
		t.Errorf("%d are admitted, want 10", n)
	}
	for _, p := range a[:5] {
		p.Leave()
		p.Leave() // nothing more
	}
	if n := open(a); n != 15 {
		t.Errorf("%d were admitted after 5 left, want 15", n)
	}
	for _, p := range a { // also those that wait
		p.Leave()
	}
	if used, waiting := g.Counts(); used != 0 || waiting != 0 || len(g.by) != 0 {
		t.Errorf("%d in use, %d wait, %d tenants", used, waiting, len(g.by))
	}
}

// A newcomer does not wait until somebody leaves, up to an equal share.
func TestGateNewcomerTakesItsShare(t *testing.T) {
	g := NewGate(10, Limits{Waiting: 1000, Cost: 1000})
	a := reserve(t, g, "a", 50)
	b := reserve(t, g, "b", 20)
	if n := open(b); n != 5 {
		t.Errorf("%d of b are admitted, its share is 5", n)
	}
	c := reserve(t, g, "c", 1)
	if open(c) != 1 {
		t.Error("c waits though it has nothing")
	}
	// Units go to who got least work.
	b[0].Charge(100)
	for _, p := range a[:9] {
		p.Leave()
	}
	if na, nb := open(a), open(b); na != 13 || nb != 5 {
		t.Errorf("%d of a and %d of b were admitted, want 13 and 5", na, nb)
	}
}

func TestGateIsBounded(t *testing.T) {
	g := NewGate(2, Limits{Waiting: 20, Cost: 40})
	if _, err := g.Reserve("a", 13, 1, 0); !errors.Is(err, nil) {
		t.Errorf("11 that wait of 20: %v", err)
	}
	if _, err := g.Reserve("a", 1, 1, 0); !errors.Is(err, ErrFull) {
		t.Errorf("a 12th of a beside 9 free: %v", err)
	}
	if _, err := g.Reserve("b", 9, 1, 0); err != nil {
		t.Errorf("a newcomer: %v", err)
	}
	if _, err := g.Reserve("c", 1, 29, 0); !errors.Is(err, ErrFull) {
		t.Errorf("a costly one: %v", err)
	}
	used, waiting := g.Counts()
	if _, err := g.Reserve("c", 100, 1, 0); !errors.Is(err, ErrFull) {
		t.Errorf("too many: %v", err)
	}
	if u, w := g.Counts(); u != used || w != waiting {
		t.Error("what is refused leaves something behind")
	}
}

func TestGateWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, Limits{Waiting: 10, Cost: 10})
		a := reserve(t, g, "a", 2)
		if err := a[0].Wait(t.Context()); err != nil {
			t.Error(err)
		}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 2)
		go func() { got <- a[1].Wait(ctx) }()
		synctest.Wait()
		cancel(why)
		if err := <-got; !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		go func() { got <- a[1].Wait(t.Context()) }()
		synctest.Wait()
		g.SetCapacity(2)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

// However many tenants come, those with a share of their own beyond the bound stay few.
func TestGateHoldsAgainstManyTenants(t *testing.T) {
	g := NewGate(10, Limits{Waiting: 1000, Cost: 1000})
	var all []*Pass
	for i := range 100 {
		all = append(all, reserve(t, g, fmt.Sprint(i), 3)...)
	}
	if used, waiting := g.Counts(); used != 20 || waiting != 280 {
		t.Errorf("%d in use and %d wait, want 20 and 280", used, waiting)
	}
	for len(all) > 0 { // they get in as others leave, not only up to the bound
		in := slices.IndexFunc(all, func(p *Pass) bool { return open([]*Pass{p}) == 1 })
		if in < 0 {
			t.Fatalf("%d wait, and nobody is let in", len(all))
		}
		all[in].Leave()
		all = slices.Delete(all, in, in+1)
	}
}
