package config

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// validator collects problems; Origins.Locate adds where values came from.
type validator struct{ problems Problems }

func (v *validator) wrong(key, format string, args ...any) {
	v.problems = append(v.problems, Problem{Key: key, Text: fmt.Sprintf(format, args...)})
}

// limits checks every field of cfg, a struct, against its key in the table.
func (v *validator) limits(t Table, cfg any) {
	fields := map[string]any{}
	collect(reflect.ValueOf(cfg), "", fields)
	for _, k := range t.Keys {
		if err := k.check(fields[k.Name]); err != nil {
			v.wrong(k.Name, "%v", err)
		}
	}
}

// collect finds the value of every key in a configuration struct.
func collect(s reflect.Value, prefix string, out map[string]any) {
	for i := range s.NumField() {
		tag := s.Type().Field(i).Tag.Get("mapstructure")
		switch f := s.Field(i); {
		case tag == ",squash":
			collect(f, prefix, out)
		case f.Kind() == reflect.Struct:
			collect(f, prefix+tag+".", out)
		default:
			out[prefix+tag] = f.Interface()
		}
	}
}

// namePattern matches names that can be part of a store key and one word on a screen.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func (v *validator) name(key, name string) {
	if !namePattern.MatchString(name) {
		v.wrong(key, "%q is not a name: use up to 63 letters, digits, dots, - and _, with a letter or digit at both ends", name)
	}
}

func (v *validator) cluster(name, namespace, stateDir string) {
	v.name("cluster", name)
	if err := cluster.ValidateNamespace(namespace); err != nil {
		v.wrong("namespace", "%v", err)
	}
	if stateDir == "" {
		v.wrong("state_dir", "is empty and there is no home directory; set it to an absolute path")
	}
}

// listen checks host:port, where the host may be empty and the port 0.
func (v *validator) listen(key, addr string) {
	_, port, err := net.SplitHostPort(addr)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || strconv.FormatUint(n, 10) != port {
		v.wrong(key, "%q is not an address: expected host:port, like 127.0.0.1:0", addr)
	}
}

// onLoopback reports whether an address can be reached from this machine only.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// dialable checks host:port with both present, optionally behind a scheme.
func dialable(addr string, schemes ...string) bool {
	if strings.Contains(addr, "://") {
		u, err := url.Parse(addr)
		if err != nil || strings.Trim(u.Path, "/") != "" {
			return false
		}
		known := false
		for _, s := range schemes {
			known = known || u.Scheme == s
		}
		if !known {
			return false
		}
		addr = u.Host
	}
	host, port, err := net.SplitHostPort(addr)
	n, perr := strconv.ParseUint(port, 10, 16)
	return err == nil && perr == nil && host != "" && n > 0
}

func (v *validator) etcd(e EtcdClient) {
	for _, ep := range e.Endpoints {
		if !dialable(ep, "http", "https", "dynamod") {
			v.wrong("etcd.endpoints", "%q is not an endpoint: expected host:port, https://host:port or dynamod://host:port", ep)
		}
	}
	if e.InDynamod() {
		v.embedded("etcd.endpoints", e.Endpoints, []given{
			{"etcd.username", e.Username != ""}, {"etcd.ca_file", e.CAFile != ""}, {"etcd.cert_file", e.CertFile != ""},
		})
	}
	if e.Username == "" && e.Password != "" {
		v.wrong("etcd.username", "is not set, but etcd.password is")
	}
	if e.Username != "" && e.Password == "" {
		v.wrong("etcd.password", "is not set, but etcd.username is")
	}
	v.pair(e.TLSFiles(), false, false)
}

// nixl checks that TLS is configured on both sides or not at all: a node with a certificate
// must also say whom to trust.
func (v *validator) nixl(n NIXL) {
	v.pair(n.TLSFiles(), true, true)
	if n.TLSServerName != "" && n.TLSCertFile == "" {
		v.wrong("nixl.tls_cert_file", "is not set, but nixl.tls_server_name is")
	}
}

func (v *validator) nats(n NATSClient) {
	for u := range strings.SplitSeq(n.URL, ",") {
		if n.URL != "" && !dialable(strings.TrimSpace(u), "nats", "tls", "ws", "wss", "dynamod") {
			v.wrong("nats.url", "%q is not a server: expected nats://host:port or dynamod://host:port", strings.TrimSpace(u))
		}
	}
	if n.InDynamod() {
		v.embedded("nats.url", strings.Split(n.URL, ","), []given{
			{"nats.username", n.Username != ""}, {"nats.token", n.Token != ""}, {"nats.nkey", n.NKey != ""}, {"nats.creds_file", n.CredsFile != ""},
			{"nats.ca_file", n.CAFile != ""}, {"nats.cert_file", n.CertFile != ""},
		})
	}
	if n.Username == "" && n.Password != "" {
		v.wrong("nats.username", "is not set, but nats.password is")
	}
	v.pair(n.TLSFiles(), false, false)
	if f := n.TLSFiles(); f.Any() && strings.Contains(n.URL, "nats://") {
		v.wrong(f.Named(), "has no use with nats:// in nats.url: write tls:// for a server that speaks TLS")
	}
}

// exposed checks what other hosts reach: a frontend there asks clients who they are, unless
// it is told not to.
func (v *validator) exposed(d Dynamod) {
	f := d.Frontend
	if f.Enabled && !onLoopback(net.JoinHostPort(f.Host, "1")) && f.APIKey == "" && f.TLSClientCAFile == "" && !f.AllowUnauthenticated {
		v.wrong("frontend.host", "%q is an address that other hosts reach, where everybody could use the models: set frontend.api_key, or frontend.tls_client_ca_file, or frontend.allow_unauthenticated: true to admit every client", f.Host)
	}
	if d.Status.Profiles && !onLoopback(d.Status.Listen) {
		v.wrong("status.profiles", "is set, but status.listen is %s: profiles tell everything about the process and are served on loopback only", d.Status.Listen)
	}
}

// given is a setting and whether it has a value.
type given struct {
	key string
	set bool
}

// embedded checks addresses of servers inside a dynamod: they stand alone, and other ways
// to log in would be ignored.
func (v *validator) embedded(key string, addrs []string, others []given) {
	for _, a := range addrs {
		if !strings.HasPrefix(strings.TrimSpace(a), SchemeDynamod) {
			v.wrong(key, "%q is listed with an address that begins with %s: all must begin so, or none", strings.TrimSpace(a), SchemeDynamod)
		}
	}
	for _, o := range others {
		if o.set {
			v.wrong(o.key, "has no use with %s in %s: a server inside a dynamod accepts only the cluster's secret", SchemeDynamod, key)
		}
	}
}

// Validate checks what a single value cannot show, and once more the limits of
// each value, for a configuration that was not loaded but written in code. The
// error is [Problems].
func (d Dynamod) Validate() error {
	var v validator
	v.limits(DynamodTable(), d)
	v.cluster(d.Cluster, d.Namespace, d.StateDir)
	v.name("node.name", d.Node.Name)
	if h := d.Node.AdvertiseHost; h == "" || strings.ContainsAny(h, " /") || strings.Contains(h, ":") && net.ParseIP(h) == nil {
		v.wrong("node.advertise_host", "%q is not a host name or address without a port", h)
	}
	if err := cluster.CheckTaints(d.Node.Taints); err != nil {
		v.wrong("node.taints", "%v", err)
	}
	v.discovery(d.Discovery, d.Etcd.EtcdClient)
	v.kubernetes(d.Discovery, d.Etcd.EtcdClient, d.Kubernetes)
	v.kubernetesTTL(d.Kubernetes.LeaseTTL)
	v.etcd(d.Etcd.EtcdClient)
	v.nats(d.NATS.NATSClient)
	v.nixl(d.NIXL)
	if _, _, err := d.GPU.Groups(); err != nil {
		v.wrong("gpu.devices", "%v", err)
	}
	if d.Etcd.Mode == ModeExternal && len(d.Etcd.Endpoints) == 0 {
		v.wrong("etcd.endpoints", "is empty, but etcd.mode is %s", ModeExternal)
	}
	if d.NATS.Mode == ModeExternal && d.NATS.URL == "" {
		v.wrong("nats.url", "is empty, but nats.mode is %s", ModeExternal)
	}
	for _, l := range []struct{ key, addr string }{
		{"etcd.listen", d.Etcd.Listen},
		{"nats.listen", d.NATS.Listen},
		{"frontend.host", net.JoinHostPort(d.Frontend.Host, strconv.Itoa(d.Frontend.Port))},
		{"status.listen", d.Status.Listen},
		{"request_plane.listen", d.RequestPlane.Listen},
		{"nixl.listen", d.NIXL.Listen},
	} {
		v.listen(l.key, l.addr)
	}
	v.pair(d.Frontend.TLSFiles(), false, true)
	v.pair(d.Status.TLSFiles(), false, true)
	v.exposed(d)
	// etcd counts leases in seconds. Below two, a busy machine loses them for nothing.
	if ttl := d.Etcd.LeaseTTL; ttl < 2*time.Second || ttl > time.Hour || ttl%time.Second != 0 {
		v.wrong("etcd.lease_ttl", "%s is not a number of whole seconds from 2s to 1h", formatDuration(ttl))
	}
	if d.Frontend.BodyLimit == 0 {
		v.wrong("frontend.body_limit", "0 would refuse every request; expected a size like 45MiB")
	}
	if t := d.Frontend.WriteTimeout; t < time.Second || t > time.Hour {
		v.wrong("frontend.write_timeout", "%s is not between 1s and 1h", formatDuration(t))
	}
	v.planner(d.Planner)
	v.probed("health_check.wait", d.HealthCheck.Wait)
	v.probed("health_check.timeout", d.HealthCheck.Timeout)
	if d.Disagg.RemotePrefillTimeout == 0 {
		v.wrong("disagg.remote_prefill_timeout", "0 would never wait; expected a duration like 30s")
	}
	// The other limits of an engine are in the table already.
	if err := (cluster.EngineSpec{BlockSize: d.Engine.BlockSize}).Validate(); err != nil {
		v.wrong("engine.block_size", "%d is not a number of tokens: expected 16, 32, 64 or 128", d.Engine.BlockSize)
	}
	if target := d.Engine.ITLTarget; target > cluster.MaxITLTarget || target%time.Millisecond != 0 {
		v.wrong("engine.itl_target", "%s is not a number of whole milliseconds up to %s", formatDuration(target), formatDuration(cluster.MaxITLTarget))
	}
	if _, err := cluster.ParseSpeculative(d.Engine.Speculative); err != nil {
		v.wrong("engine.speculative", "%s; expected off, ngram, ngram:5, or ngram:num_speculative_tokens=5,prompt_lookup_max=4,prompt_lookup_min=2",
			strings.TrimPrefix(err.Error(), "speculative: "))
	}
	return v.problems.err()
}

func (v *validator) probed(key string, d time.Duration) {
	if d < 100*time.Millisecond || d > time.Hour {
		v.wrong(key, "%s is not between 100ms and 1h", formatDuration(d))
	}
}

// Validate checks what a single value cannot show, like [Dynamod.Validate].
func (d Dynctl) Validate() error {
	var v validator
	v.limits(DynctlTable(), d)
	v.cluster(d.Cluster, d.Namespace, d.StateDir)
	v.discovery(d.Discovery, d.Etcd)
	v.kubernetes(d.Discovery, d.Etcd, Kubernetes{KubernetesClient: d.Kubernetes})
	v.etcd(d.Etcd)
	v.nats(d.NATS)
	v.pair(d.Frontend.TLSFiles(), false, false)
	if i := d.Top.Interval; i < 100*time.Millisecond || i > time.Hour {
		v.wrong("top.interval", "%s is not between 100ms and 1h", formatDuration(i))
	}
	return v.problems.err()
}
