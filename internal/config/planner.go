package config

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Planner says what load the cluster should carry, for the planner that advises on the number of workers, or
// changes it.
type Planner struct {
	Mode              string        `mapstructure:"mode"`
	Connector         string        `mapstructure:"connector"`
	KubernetesPrefill string        `mapstructure:"kubernetes_prefill"`
	KubernetesDecode  string        `mapstructure:"kubernetes_decode"`
	Goal              string        `mapstructure:"goal"`
	TTFT              time.Duration `mapstructure:"ttft"`
	ITL               time.Duration `mapstructure:"itl"`
	Percentile        int           `mapstructure:"percentile"`
	Devices           int           `mapstructure:"devices"`
	PrefillMin        int           `mapstructure:"prefill_min"`
	PrefillMax        int           `mapstructure:"prefill_max"`
	DecodeMin         int           `mapstructure:"decode_min"`
	DecodeMax         int           `mapstructure:"decode_max"`
	Predictor         string        `mapstructure:"predictor"`
	Interval          time.Duration `mapstructure:"interval"`
	ForecastInterval  time.Duration `mapstructure:"forecast_interval"`
	CoolDown          time.Duration `mapstructure:"cool_down"`
	Thresholds        bool          `mapstructure:"thresholds"`
	ActionTimeout     time.Duration `mapstructure:"action_timeout"`
}

const maxPlanned = 100_000 // workers, and devices

// ConnectorKubernetes is the value of [Planner.Connector] with which the planner scales pods.
const ConnectorKubernetes = "kubernetes"

func readsScaleTarget(text string) error {
	_, err := cluster.ParseScaleTarget(text)
	return err
}

func plannerKeys() []Key {
	return []Key{
		{Name: "planner.mode", Kind: KindString, Default: "advise", Choices: []string{"off", "advise", "act"}, Runtime: true, Help: "advise decides how many prefill and decode workers the load needs and tells it (dynctl explain planner); act also changes them"},
		{Name: "planner.connector", Kind: KindString, Default: "topology", Choices: []string{"topology", ConnectorKubernetes, "virtual"}, Runtime: true, Help: "what carries decisions out with planner.mode: act: topology changes the workers of the cluster; kubernetes also scales the objects whose pods they run in, and needs planner.devices; virtual leaves all to a program that follows the keys v1/NAMESPACE/planner/"},
		{Name: "planner.kubernetes_prefill", Kind: KindString, Default: "statefulsets.apps/dynctl-prefill", Form: cluster.ScaleTargetForm, Reads: readsScaleTarget, Runtime: true, Help: "object with a scale subresource whose pods are nodes for prefill workers, one each, as RESOURCE.GROUP/NAME, with planner.connector: kubernetes; empty leaves their pods alone"},
		{Name: "planner.kubernetes_decode", Kind: KindString, Default: "statefulsets.apps/dynctl-decode", Form: cluster.ScaleTargetForm, Reads: readsScaleTarget, Runtime: true, Help: "the same for decode workers; it may be the same object"},
		{Name: "planner.goal", Kind: KindString, Default: "sla", Choices: []string{"sla", "throughput", "cost"}, Runtime: true, Help: "what the workers must hold: sla is the latencies below, throughput at most 80 % of the capacity of each role, cost at most 95 %"},
		{Name: "planner.ttft", Kind: KindDuration, Default: 500 * time.Millisecond, Runtime: true, Help: "longest time to the first token, with planner.goal: sla"},
		{Name: "planner.itl", Kind: KindDuration, Default: 50 * time.Millisecond, Runtime: true, Help: "longest mean time between the tokens of an answer, with planner.goal: sla"},
		{Name: "planner.percentile", Kind: KindInt, Default: 95, Min: 1, Max: 99, Runtime: true, Help: "percent of requests that must keep planner.ttft and planner.itl"},
		{Name: "planner.devices", Kind: KindInt, Default: 0, Max: maxPlanned, Runtime: true, Help: "devices that all workers together may take, one each; 0 means those of the cluster's nodes"},
		{Name: "planner.prefill_min", Kind: KindInt, Default: 0, Max: maxPlanned, Runtime: true, Help: "fewest prefill workers; with 0, decode workers may compute all prompts"},
		{Name: "planner.prefill_max", Kind: KindInt, Default: 0, Max: maxPlanned, Runtime: true, Help: "most prefill workers; 0 is no limit but devices"},
		{Name: "planner.decode_min", Kind: KindInt, Default: 1, Max: maxPlanned, Runtime: true, Help: "fewest decode workers"},
		{Name: "planner.decode_max", Kind: KindInt, Default: 0, Max: maxPlanned, Runtime: true, Help: "most decode workers; 0 is no limit but devices"},
		{Name: "planner.predictor", Kind: KindString, Default: "auto", Choices: []string{"constant", "moving-average", "linear", "kalman", "holt-winters", "arima", "auto"}, Runtime: true, Help: "how the load is forecast; auto takes what would have been best so far"},
		{Name: "planner.interval", Kind: KindDuration, Default: 5 * time.Second, Runtime: true, Help: "time between two decisions, from 1s to 1m; the load is forecast in steps of four"},
		{Name: "planner.forecast_interval", Kind: KindDuration, Default: 180 * time.Second, Runtime: true, Help: "time between two choices of a forecast"},
		{Name: "planner.cool_down", Kind: KindDuration, Default: time.Minute, Runtime: true, Help: "how long a role keeps its workers after it has got one; with planner.mode: act also how long nothing is changed after somebody else has changed the topology"},
		{Name: "planner.thresholds", Kind: KindBool, Default: true, Runtime: true, Help: "also plan disagg.max_local_prefill_tokens, where disagg.conditional is threshold; false leaves it as it is set"},
		{Name: "planner.action_timeout", Kind: KindDuration, Default: 10 * time.Minute, Runtime: true, Help: "how long a start, a change of role or a drain is waited for; with planner.mode: act a worker that has not got ready by then is given up"},
	}
}

// planner checks what limits mean together.
func (v *validator) planner(p Planner) {
	for _, r := range []struct {
		role        string
		least, most int
	}{{"prefill", p.PrefillMin, p.PrefillMax}, {"decode", p.DecodeMin, p.DecodeMax}} {
		if r.most > 0 && r.most < r.least {
			v.wrong("planner."+r.role+"_max", "%d is less than planner.%s_min, %d", r.most, r.role, r.least)
		}
	}
	if p.Devices > 0 && p.PrefillMin+p.DecodeMin > p.Devices {
		v.wrong("planner.devices", "%d is less than planner.prefill_min and planner.decode_min together, %d", p.Devices, p.PrefillMin+p.DecodeMin)
	}
	if p.Connector == ConnectorKubernetes && p.Devices == 0 { // the nodes that there are bound nothing
		v.wrong("planner.devices", "0 does not bound the pods that planner.connector %s may start", ConnectorKubernetes)
	}
	if p.Interval < time.Second || p.Interval > time.Minute {
		v.wrong("planner.interval", "%s is not between 1s and 1m", formatDuration(p.Interval))
	}
	if p.ForecastInterval < p.Interval {
		v.wrong("planner.forecast_interval", "%s is less than planner.interval, %s", formatDuration(p.ForecastInterval), formatDuration(p.Interval))
	}
	if p.ActionTimeout < time.Second {
		v.wrong("planner.action_timeout", "%s is less than 1s", formatDuration(p.ActionTimeout))
	}
	for _, f := range []struct {
		key   string
		value time.Duration
	}{{"planner.ttft", p.TTFT}, {"planner.itl", p.ITL}} {
		if f.value <= 0 {
			v.wrong(f.key, "0 cannot be held; expected a duration like 50ms")
		}
	}
}

// Check returns an error that names each setting that does not go with others: what the values alone
// do not show. Settings that change at run time are checked so where they come together.
func (p Planner) Check() error {
	var v validator
	v.planner(p)
	return v.problems.err()
}
