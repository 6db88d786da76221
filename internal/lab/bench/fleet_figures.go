package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Column keys of the section scale, beside those of requests.
const (
	keyReady      = "ready_s"
	keyStartCPU   = "start_cpu_s"
	keyIdleCores  = "idle_percent"
	keyWrites     = "etcd_writes_per_s"
	keyPublished  = "nats_in_per_s"
	keyDelivered  = "nats_out_per_s"
	keyMemory     = "memory_mb"
	keyGoroutines = "goroutines"
	keyFiles      = "files"
	keySeries     = "series"
	keyScrape     = "scrape_ms"
	keyScrapeCPU  = "scrape_cpu_ms"
	keyChange     = "change_ms"
	keyChangeCPU  = "change_cpu_ms"
	keyOrder      = "order_ms"
	keyReplace    = "replace_ms"
	keyReplaceCPU = "replace_cpu_ms"
)

// fleetColumns are the figures of a fleet.
func fleetColumns() []Column {
	return []Column{
		{keyReady, "ready, s", "from declaring the workers until every frontend can choose all of them"},
		{keyStartCPU, "start, CPU s", ""},
		{keyIdleCores, "idle, % of a core", ""},
		{keyWrites, "etcd writes/s, idle", ""},
		{keyPublished, "NATS messages/s, idle", "published"},
		{keyDelivered, "NATS deliveries/s, idle", "one for each subscriber of a message"},
		{keyMemory, "memory, MB", "heap and stacks after a garbage collection"},
		{keyGoroutines, "goroutines", ""},
		{keyFiles, "open files", "sockets included"},
		{keySeries, "series of /metrics", "of all nodes"},
		{keyScrape, "scrape, ms", "/metrics of all nodes, one after the other"},
		{keyScrapeCPU, "scrape, CPU ms", ""},
		{keyAnswer + "_p50", "request p50, ms", "of one token, one at a time, from the client"},
		{keyAnswer + "_p95", "request p95, ms", ""},
		{keyCPURequest, "request, CPU µs", ""},
		{keyDecided + "_p50", "route decision p50, µs", ""},
		{keyChange, "new worker seen, ms", "until all frontends list the model of a worker that appears in discovery"},
		{keyChangeCPU, "new worker, CPU ms", "it appears and leaves"},
		{keyOrder, "order to assignment, ms", "from the order to replace a worker until its successor is assigned"},
		{keyReplace, "replacement, ms", "until the replaced worker is gone"},
		{keyReplaceCPU, "replacement, CPU ms", ""},
	}
}

// transposed exchanges rows and columns: a column for each case, a row for each figure
// that has any. The meaning of figures goes into the table's description.
func (t Table) transposed() Table {
	t = t.removeEmpty()
	out := Table{Name: t.Name, About: t.About, Published: t.Published}
	for _, r := range t.Rows {
		out.Columns = append(out.Columns, Column{Key: r.Name, Title: r.Name})
	}
	var help []string
	for _, c := range t.Columns {
		row := Row{Name: c.Title, Figures: map[string]Figure{}}
		for _, r := range t.Rows {
			if f, ok := r.Figures[c.Key]; ok {
				row.Figures[r.Name] = f
			}
		}
		out.Rows = append(out.Rows, row)
		if c.Help != "" {
			help = append(help, fmt.Sprintf("*%s*: %s.", c.Title, c.Help))
		}
	}
	out.About = strings.Join(slices.DeleteFunc([]string{out.About, strings.Join(help, " ")}, func(s string) bool { return s == "" }), "\n")
	return out
}
