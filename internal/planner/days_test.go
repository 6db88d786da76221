package planner

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// midnight is the beginning of the second day at UTC, in the seconds of at.
const midnight = 6400.0

// moment is a time of a day, in the seconds of at.
func moment(day int, hour float64) float64 { return midnight + 86400*float64(day) + 3600*hour }

// office is a load with a peak: 30 requests a second from nine to five, 5 otherwise.
func office(hour float64) float64 {
	if hour >= 9 && hour < 17 {
		return 30
	}
	return 5
}

// diary is what a planner knows after so many days of a load, at some hour of the next one. The predictor expected of each
// step what the one before was.
func diary(days int, hour float64, load func(day int, hour float64) float64) Days {
	out := Days{First: at(moment(0, 0)).UnixNano() / int64(dayStep)}
	last := 5.0
	for n := range days*int(perDay) + int(12*hour) {
		out.Expected = append(out.Expected, last)
		last = load(n/int(perDay), float64(n%int(perDay))/12)
		out.Rates = append(out.Rates, last)
	}
	most := rememberedDays * int(perDay)
	if n := len(out.Rates) - most; n > 0 {
		out.First, out.Rates, out.Expected = out.First+int64(n), out.Rates[n:], out.Expected[n:]
	}
	return out
}

func everyDay(_ int, hour float64) float64 { return office(hour) }

// play has a planner that knows a diary live through some hours of the day after it. It returns what the workers were
// for, in device-seconds, and when the first change was.
func play(t *testing.T, known Days, day int, from, to float64, load func(hour float64) float64) (s *scene, devices, first float64) {
	t.Helper()
	s = newScene(t, config(), Plan{Prefill: 1, Decode: 1})
	s.now = moment(day, from)
	if err := s.p.RecallDays(at(s.now), known); err != nil {
		t.Fatal(err)
	}
	for s.now < moment(day, to) {
		hour := (s.now - moment(day, 0)) / 3600
		if d := s.tick(int(5 * load(hour))); d.Changes() && first == 0 {
			first = s.now
		}
		devices += 5 * float64(s.plan.Prefill+s.plan.Decode)
	}
	return s, devices, first
}

// A peak that comes every day is met before it begins, once it came again.
func TestPeakOfEveryDay(t *testing.T) {
	for days, early := range map[int]bool{1: false, 2: true, 7: true} {
		s, _, first := play(t, diary(days, 8.75, everyDay), days, 8.75, 9.1, office)
		begins := moment(days, 9)
		if got := first < begins && first > begins-120; got != early || s.plan.Prefill < 3 || s.plan.Decode < 3 {
			t.Errorf("after %d days: the first change is %v s after nine, %v", days, first-begins, s.plan)
		}
		lines := strings.Join(s.last.Lines(), "\n")
		want := "count where they are higher, since they have lowered the error of forecasts to "
		if !strings.Contains(lines, "earlier days: 30.0 requests/s at the most in 65 s, by ") || !strings.Contains(lines, want) {
			t.Errorf("after %d days: %s", days, lines)
		}
	}
}

// The same from nothing, through a week of observations each minute, with another planner from the middle of the fourth day on.
func TestWeek(t *testing.T) {
	cfg := config()
	cfg.LoadInterval, cfg.ForecastStep, cfg.ThroughputInterval, cfg.StaleAfter = time.Minute, 20*time.Minute, 3*time.Hour, 2*time.Minute
	s := newScene(t, cfg, Plan{Prefill: 1, Decode: 1})
	s.p.evaluator = capacities{{1, 1, 0}: 9, {2, 2, 0}: 20, {3, 3, 0}: 40}
	s.every, s.now = 60, moment(0, 0)
	first := map[int]float64{} // growth of each day, in seconds after nine
	for s.now < moment(7, 0) {
		if s.now == moment(3, 12) {
			kept := s.p.Days(at(s.now))
			s.p = newPlanner(t, cfg)
			s.p.evaluator = capacities{{1, 1, 0}: 9, {2, 2, 0}: 20, {3, 3, 0}: 40}
			if err := s.p.RecallDays(at(s.now), kept); err != nil {
				t.Fatal(err)
			}
		}
		day := int((s.now - midnight) / 86400)
		hour := (s.now - moment(day, 0)) / 3600
		d := s.tick(int(60 * office(hour)))
		if _, grew := first[day]; d.Changes() && d.Proposal.Prefill > d.Current.Prefill && !grew {
			first[day] = s.now - moment(day, 9)
		}
	}
	for day := range 7 {
		after, grew := first[day]
		if early := after <= 0 && after > -600; !grew || early != (day >= 2) {
			t.Errorf("day %d: %v s after nine, %v", day, after, grew)
		}
	}
}

// A holiday costs the workers of some minutes: at most a tenth more device-hours within an hour than without any
// memory, and nothing the day after. So does a weekend, of which the week before is remembered nothing at all.
func TestHoliday(t *testing.T) {
	quiet := func(float64) float64 { return 5 }
	_, without, _ := play(t, Days{}, 5, 8.75, 9.75, quiet)
	s, with, first := play(t, diary(5, 8.75, everyDay), 5, 8.75, 9.75, quiet)
	if with <= without || with > 1.1*without || s.plan != (Plan{Prefill: 1, Decode: 1}) || first == 0 {
		t.Errorf("%v device-hours, %v without memory, to %v", with/3600, without/3600, s.plan)
	}
	t.Logf("a holiday: %.2f device-hours within an hour, %.2f without memory", with/3600, without/3600)
	holiday := func(day int, hour float64) float64 {
		if day == 5 {
			return 5
		}
		return office(hour)
	}
	if _, _, first := play(t, diary(6, 8.75, holiday), 6, 8.75, 9.1, office); first >= moment(6, 9) {
		t.Errorf("the day after: the first change is %v s after nine", first-moment(6, 9))
	}
	weekends := func(day int, hour float64) float64 {
		if day%7 >= 5 {
			return 5
		}
		return office(hour)
	}
	if _, _, first := play(t, diary(12, 8.75, weekends), 12, 8.75, 9.2, quiet); first != 0 {
		t.Errorf("a weekend: a change %v s after nine", first-moment(12, 9))
	}
	if _, _, first := play(t, diary(14, 8.75, weekends), 14, 8.75, 9.1, office); first >= moment(14, 9) || first == 0 {
		t.Errorf("after a weekend: the first change is %v s after nine", first-moment(14, 9))
	}
}

// What the next planner recalls is what the one before knew, gaps as gaps; it goes on in the middle.
func TestDaysAreRecalled(t *testing.T) {
	known := diary(2, 8.75, everyDay)
	known.Rates[7], known.Expected[9] = notKnown, notKnown
	p := newPlanner(t, config())
	now := at(moment(2, 8.75))
	if err := p.RecallDays(now, known); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.days.rate(known.First + 7); ok {
		t.Error("a gap is a rate")
	}
	b, err := json.Marshal(p.Days(now))
	if err != nil {
		t.Fatal(err)
	}
	var again Days
	if err := json.Unmarshal(b, &again); err != nil || len(again.Rates) != len(known.Rates) || again.First != known.First {
		t.Fatalf("%v, %d steps of %d", err, len(again.Rates), len(known.Rates))
	}
	for i := range known.Rates {
		if again.Rates[i] != known.Rates[i] || again.Expected[i] != known.Expected[i] {
			t.Fatalf("step %d: %v and %v, want %v and %v", i, again.Rates[i], again.Expected[i], known.Rates[i], known.Expected[i])
		}
	}
	// Four minutes before nine, another planner takes over from the diary that ends at a quarter to.
	_, _, first := play(t, again, 2, 9-4./60, 9.1, office)
	if first >= moment(2, 9) || first == 0 {
		t.Errorf("the first change is %v s after nine", first-moment(2, 9))
	}
	full := diary(9, 0, everyDay)
	if b, err := json.Marshal(full); err != nil || len(b) > 64<<10 || len(full.Rates) != rememberedDays*int(perDay) {
		t.Errorf("%d bytes of %d steps, %v", len(b), len(full.Rates), err)
	}
}

func TestDaysThatCannotBe(t *testing.T) {
	now := at(moment(2, 0))
	for want, spoil := range map[string]func(*Days){
		"rates: 2305 steps":      func(d *Days) { d.Rates = make([]float64, 2305); d.Expected = d.Rates },
		"expected: 3 steps":      func(d *Days) { d.Expected = d.Expected[:3] },
		"rates[2]: -2":           func(d *Days) { d.Rates[2] = -2 },
		"rates[2]: NaN":          func(d *Days) { d.Rates[2] = math.NaN() },
		"expected[1]: 1e+10":     func(d *Days) { d.Expected[1] = 1e10 },
		"first: step":            func(d *Days) { d.First += 100_000 },
		"first: step 9223372036": func(d *Days) { d.First = math.MaxInt64 },
		"first: step -1":         func(d *Days) { d.First = -1 },
	} {
		d := diary(2, 0, everyDay)
		spoil(&d)
		p := newPlanner(t, config())
		if err := p.RecallDays(now, d); err == nil || !strings.HasPrefix(err.Error(), want) || len(p.days.steps) != 0 {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Back-tests count what could have been known: of a load in which nothing returns, earlier days say nothing; one that
// has no steps to compare is not tested.
func TestBackTestOfDays(t *testing.T) {
	for _, tc := range []struct {
		name string
		days int
		load func(day int, hour float64) float64
		pays bool
		done bool
	}{
		{"a peak each day", 4, everyDay, true, true},
		{"a level", 4, func(int, float64) float64 { return 20 }, false, true},
		{"a peak that moves", 4, func(day int, hour float64) float64 { return office(math.Mod(hour+5*float64(day), 24)) }, false, true},
		{"five minutes at noon, on some days and as many not, as it seems only then", 5, func(day int, hour float64) float64 {
			if hour == 12 && (day == 0 || day == 1 || day == 3) {
				return 30
			}
			return 5
		}, false, true},
		{"a peak each day, of days with less", 3, func(day int, hour float64) float64 {
			if day == 2 {
				return 0.4 * office(hour)
			}
			return office(hour)
		}, true, true},
		{"one day", 1, everyDay, false, false},
	} {
		p := newPlanner(t, config())
		now := at(moment(tc.days, 0))
		if err := p.RecallDays(now, diary(tc.days, 0, tc.load)); err != nil {
			t.Fatal(err)
		}
		p.days.judge(now, 1)
		if _, done := p.days.errs.ratio(); done != tc.done || p.days.errs.pays() != tc.pays {
			t.Errorf("%s: %+v", tc.name, p.days.errs)
		}
	}
}

// Earlier days that expect hardly more than the predictor do not raise it: that would be chance.
func TestDaysRaiseClearly(t *testing.T) {
	for _, tc := range []struct{ alone, daily, want float64 }{{10, 10.9, 10}, {10, 11.1, 11.1}, {10, 3, 10}, {0, 1, 1}, {0, 0, 0}} {
		if got := raised(tc.alone, tc.daily); got != tc.want {
			t.Errorf("%v raised by %v: %v, want %v", tc.alone, tc.daily, got, tc.want)
		}
	}
}

// A predictor that was chosen by name is left alone.
func TestDaysOnlyWithAuto(t *testing.T) {
	cfg := config()
	cfg.Predictor = "constant"
	p := newPlanner(t, cfg)
	now := moment(7, 9) - 60
	if err := p.RecallDays(at(now), diary(7, 8.75, everyDay)); err != nil {
		t.Fatal(err)
	}
	p.learn(Observation{Start: at(now - 5), End: at(now), Arrived: 25})
	if d := p.demand(at(now)); d.expected > 6 || d.daily.days != 0 {
		t.Errorf("%+v", d)
	}
	cfg.Predictor = "auto"
	if err := p.Configure(cfg); err != nil {
		t.Fatal(err)
	}
	if d := p.demand(at(now)); d.expected != 30 || d.later != 30 || d.daily.days != 7 {
		t.Errorf("%+v", d)
	}
}

func FuzzDays(f *testing.F) {
	f.Add([]byte(`{"first":5666665,"rates":[1,-1,2.5],"expected":[1,2,-1]}`))
	f.Add([]byte(`{"first":-1,"rates":[1e300],"expected":[null]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var d Days
		if json.Unmarshal(in, &d) != nil {
			return
		}
		p, err := New(config(), machine{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_700_000_000, 0)
		if p.RecallDays(now, d) != nil {
			return
		}
		p.learn(Observation{Start: now.Add(-5 * time.Second), End: now, Arrived: 25})
		if got := p.demand(now); !(got.expected >= 0 && got.expected <= highestRate) || !(got.down() >= got.up()) {
			t.Errorf("%s: %+v", in, got)
		}
	})
}
