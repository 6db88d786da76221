package externaltest

import (
	"strconv"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/requestplane"
)

func (s Setup) sleep(t *testing.T) {
	_, e := s.start(t, Options{}, nil)
	if _, ok := e.(external.Sleeper); !ok {
		t.Skip("it does not sleep")
	}
	for level := cluster.SleepLight; level <= cluster.SleepDeep; level++ {
		t.Run("level "+strconv.Itoa(level), func(t *testing.T) { s.sleepAt(t, level) })
	}
	t.Run("impossible", s.noSleep)
	t.Run("known", s.knownAsleep)
}

func (s Setup) sleepAt(t *testing.T, level int) {
	fabric := NewFabric()
	d, e := s.start(t, Options{Fabric: fabric, NoBackup: level > cluster.SleepLight}, nil)
	sleeper := e.(external.Sleeper)
	asleep := func(want bool) {
		t.Helper()
		if got, err := sleeper.Asleep(t.Context()); err != nil || got != want || d.Asleep() != want {
			t.Fatalf("asleep %v, %v; the server %v; want %v", got, err, d.Asleep(), want)
		}
	}
	for range 2 {
		asleep(false)
		if err := sleeper.CanSleep(t.Context(), level); err != nil {
			t.Fatal(err)
		}
		if err := sleeper.Sleep(t.Context(), level); err != nil {
			t.Fatal(err)
		}
		asleep(true)
		_, err := Collect(t.Context(), t, e, Ask(Prompt(4), 2))
		Kind(t, err, requestplane.KindOverloaded, requestplane.KindUnavailable)
		if err := sleeper.Wake(t.Context(), level); err != nil {
			t.Fatal(err)
		}
		asleep(false)
		collect(t, e, Ask(Prompt(4), 2))
	}
	if wrong := fabric.Wrong(); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// A server that was not started for it says so, and is not put to a sleep from which it does not
// wake.
func (s Setup) noSleep(t *testing.T) {
	for _, o := range []Options{{NoSleep: true}, {NoBackup: true}} {
		if o.NoBackup && s.Backend != cluster.BackendSGLang {
			continue
		}
		d, e := s.start(t, o, nil)
		err := e.(external.Sleeper).Sleep(t.Context(), cluster.SleepLight)
		Kind(t, err, requestplane.KindUnavailable)
		if d.Asleep() {
			t.Errorf("%+v: it sleeps", o)
		}
	}
}

// An adapter that was made while the server slept knows it, from the server or from its
// configuration.
func (s Setup) knownAsleep(t *testing.T) {
	d, e := s.start(t, Options{}, func(c *wire.Config) { c.Asleep = true })
	d.SetAsleep(true)
	sleeper := e.(external.Sleeper)
	if asleep, err := sleeper.Asleep(t.Context()); err != nil || !asleep {
		t.Errorf("asleep %v, %v", asleep, err)
	}
	if err := sleeper.Wake(t.Context(), cluster.SleepLight); err != nil || d.Asleep() {
		t.Errorf("it sleeps on, %v", err)
	}
}
