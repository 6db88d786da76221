package media

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// crowd is what waits at a line with one place, which somebody has.
type crowd struct {
	*line
	t     *testing.T
	wg    sync.WaitGroup
	mu    sync.Mutex
	order []string
}

func newCrowd(t *testing.T, limit int) *crowd {
	c := &crowd{line: newLine(1, limit), t: t}
	if err := c.enter(t.Context(), Owner{"first", "first"}); err != nil {
		t.Fatal(err)
	}
	return c
}

// wait has an image wait, which takes so many seconds once it has the place.
func (c *crowd) wait(o Owner, seconds float64) {
	c.wg.Go(func() {
		if err := c.enter(context.Background(), o); err != nil {
			c.t.Error(err)
			return
		}
		c.mu.Lock()
		c.order = append(c.order, o.Request)
		c.mu.Unlock()
		c.leave(o, seconds)
	})
	synctest.Wait()
}

// end gives the place back and returns whose images were let in, in order.
func (c *crowd) end() []string {
	c.leave(Owner{"first", "first"}, 0)
	c.wg.Wait()
	return c.order
}

// An image that comes later does not wait for all of a request that came before, and no request waits for ever.
func TestLineIsFair(t *testing.T) {
	type image struct {
		request, tenant string
		seconds         float64
	}
	many := func(n int, i image) []image { return slices.Repeat([]image{i}, n) }
	for name, tc := range map[string]struct {
		wait []image
		want string
	}{
		"one request after the other": {[]image{{"a", "t", 1}, {"b", "t", 1}, {"c", "t", 1}}, "[a b c]"},
		"requests of a tenant":        {append(many(4, image{"a", "t", 1}), image{"b", "t", 1}), "[a b a a a]"},
		"two large ones":              {append(many(3, image{"a", "t", 1}), many(3, image{"b", "t", 1})...), "[a b a b a b]"},
		"tenants":                     {append(many(4, image{"a", "t", 1}), image{"b", "u", 1}, image{"c", "u", 1}), "[a b a c a a]"},
		"tenants by time":             {append(many(3, image{"a", "t", 10}), many(4, image{"b", "u", 1})...), "[a b b b b a a]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 100)
				for _, i := range tc.wait {
					c.wait(Owner{i.request, i.tenant}, i.seconds)
				}
				if got := fmt.Sprint(c.end()); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			})
		})
	}
}

// A request of many images gets its turns while requests with one keep coming.
func TestLineStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(1, 100)
		enter := func(o Owner) chan struct{} {
			in := make(chan struct{})
			go func() {
				if err := l.enter(context.Background(), o); err != nil {
					t.Error(err)
				}
				close(in)
			}()
			synctest.Wait()
			return in
		}
		<-enter(Owner{"a", "t"})
		var large []chan struct{}
		for range 3 {
			large = append(large, enter(Owner{"large", "t"}))
		}
		turns := 0
		for i := 0; ; i++ {
			enter(Owner{fmt.Sprint(i), "t"})
			l.leave(Owner{Tenant: "t"}, 1)
			synctest.Wait()
			select {
			case <-large[turns]:
				turns++
			default:
			}
			if turns == len(large) {
				if i > 8 {
					t.Errorf("its last turn was after %d of others", i)
				}
				break
			}
			if i > 100 {
				t.Fatal("a request of three images starves")
			}
		}
		for l.len() > 0 {
			l.leave(Owner{Tenant: "t"}, 1)
			synctest.Wait()
		}
	})
}

// Who waits may give up, whatever happens at the same time, and no place gets lost. A tenant may wait with as
// many images as are still free for everyone.
func TestLineIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(2, 4)
		ctx, cancel := context.WithCancelCause(t.Context())
		for range 2 {
			if err := l.enter(ctx, Owner{"a", "t"}); err != nil {
				t.Fatal(err)
			}
		}
		left := make(chan error, 4)
		for range 2 {
			go func() { left <- l.enter(ctx, Owner{"a", "t"}) }()
		}
		synctest.Wait()
		if err := l.enter(ctx, Owner{"b", "t"}); !errors.Is(err, ErrBusy) {
			t.Errorf("three of four for one tenant: %v", err)
		}
		go func() { left <- l.enter(ctx, Owner{"c", "u"}) }()
		synctest.Wait()
		if n := l.len(); n != 3 {
			t.Errorf("%d wait", n)
		}
		why := errors.New("gone")
		cancel(why)
		for range 3 {
			if err := <-left; !errors.Is(err, why) {
				t.Errorf("left with %v", err)
			}
		}
		l.leave(Owner{"a", "t"}, 1)
		l.leave(Owner{"a", "t"}, 1)
		if l.free != 2 || l.len() != 0 || len(l.waiting) != 0 {
			t.Errorf("%d free, %d wait, %v", l.free, l.len(), l.waiting)
		}
	})
	for range 200 { // a place comes as its owner leaves
		l := newLine(1, 4)
		if err := l.enter(t.Context(), Owner{"a", "t"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() { got <- l.enter(ctx, Owner{"b", "t"}) }()
		go cancel()
		l.leave(Owner{"a", "t"}, 1)
		if <-got == nil {
			l.leave(Owner{"b", "t"}, 1)
		}
		if l.free != 1 {
			t.Fatal("a place is lost")
		}
	}
}
