package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/metrics"
)

// errNotRemote is returned when a prompt was prefilled locally.
var errNotRemote = errors.New("prompts prefilled remotely")

// kvTransfers holds the counters of a node's decode workers since their start.
type kvTransfers struct {
	prompts float64 // whose KV came from prefill workers
	seconds float64 // spent moving it
	exposed float64 // seconds after the end of the computation
}

// transfers reads the node's metrics.
func (n *node) transfers(ctx context.Context) (t kvTransfers, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.statusURL+"/metrics", http.NoBody)
	if err != nil {
		return t, fmt.Errorf("read metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return t, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return t, fmt.Errorf("read metrics: %s", resp.Status)
	}
	return parseTransfers(resp.Body)
}

// parseTransfers sums over all workers and transports.
func parseTransfers(r io.Reader) (t kvTransfers, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		labels, value, found := strings.Cut(rest, "} ")
		if !found {
			continue
		}
		var sum *float64
		switch name {
		case metrics.ComponentKVTransferExposed + "_count":
			sum = &t.prompts
		case metrics.ComponentKVTransferExposed + "_sum":
			sum = &t.exposed
		case metrics.ComponentKVTransferTime + "_sum":
			if strings.Contains(labels, metrics.LabelDirection+`="`+metrics.DirectionIn+`"`) {
				sum = &t.seconds
			}
		}
		if sum == nil {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return t, fmt.Errorf("read metric %s: %w", name, err)
		}
		*sum += v
	}
	if err := lines.Err(); err != nil {
		return t, fmt.Errorf("read metrics: %w", err)
	}
	return t, nil
}
