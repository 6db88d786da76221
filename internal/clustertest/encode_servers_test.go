package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external/externaltest"
)

// eyes is the name of a model without a folder, whose servers see.
const eyes = "eyes"

// seeing gives a server the model that sees, under the name by which the server knows it.
func seeing(s *simulator, known string) *simulator {
	s.spec.Model = cluster.ModelSpec{Name: eyes}
	s.spec.Engine.Server.Model = known
	return s
}

// look asks about pictures, and returns the text and who has encoded them.
func (c *Cluster) look(ctx context.Context, pictures ...string) (text string, by []string, err error) {
	parts := []any{Body{"type": "text", "text": "What is that? " + strings.Repeat("word ", 400)}}
	for _, p := range pictures {
		parts = append(parts, Body{"type": "image_url", "image_url": Body{"url": "data:image/png;base64," + p}})
	}
	resp, err := c.Post(ctx, "/v1/chat/completions", Body{
		"model": eyes, "messages": []any{Body{"role": "user", "content": parts}}, "max_tokens": 6, "nvext": Body{"extra_fields": []string{"timing"}},
	})
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", nil, fmt.Errorf("status %d: %s, %v", resp.StatusCode, b, err)
	}
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
		NVExt   struct {
			Timing struct {
				Images *struct {
					EncodedBy []string `json:"encoded_by"`
				}
			}
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil || len(answer.Choices) != 1 {
		return "", nil, fmt.Errorf("%s: %v", b, err)
	}
	if images := answer.NVExt.Timing.Images; images != nil {
		by = images.EncodedBy
	}
	return answer.Choices[0].Message.Content, by, nil
}

// serving waits until so many workers of a role serve.
func (c *Cluster) serving(want map[cluster.Role]int) {
	c.t.Helper()
	c.WaitView(fmt.Sprintf("%v serve", want), func(v client.View) bool {
		n := map[cluster.Role]int{}
		for _, w := range v.Workers() {
			if w.State.Serving() {
				n[w.Role]++
			}
		}
		for role, k := range want {
			if n[role] != k {
				return false
			}
		}
		return true
	})
}

// Servers that encode, one that computes prompts and one that answers serve one model. The server
// with the prompt gets what those that encode say of it, also while one of them is lost and another
// one is drained: then it encodes itself.
func TestEncodeServers(t *testing.T) {
	c := Start(t, Options{})
	fabric := externaltest.NewFabric()
	options := externaltest.Options{Backend: cluster.BackendVLLM, Fabric: fabric}
	var doubles []*externaltest.Double
	var servers []*simulator
	for _, as := range []cluster.Role{cluster.RoleEncode, cluster.RoleEncode, cluster.RolePrefill, cluster.RoleDecode} {
		o := options
		o.Role, o.Encoder = as, as == cluster.RoleEncode
		d, s := attachedDouble(t, c, o)
		doubles, servers = append(doubles, d), append(servers, seeing(s, c.Model))
	}
	c.attach(servers...)
	c.serving(map[cluster.Role]int{cluster.RoleEncode: 2, cluster.RolePrefill: 1, cluster.RoleDecode: 1})
	names := []string{c.workerOf(servers[0]), c.workerOf(servers[1])}
	n := 0
	look := func(pictures int) (by []string) {
		t.Helper()
		var all []string
		for range pictures {
			n++
			all = append(all, fmt.Sprintf("QUJD%08d", n))
		}
		text, by, err := c.look(t.Context(), all...)
		if err != nil || text == "" {
			t.Fatalf("%q, %v", text, err)
		}
		return by
	}
	c.WaitView("both servers encode", func(client.View) bool {
		by := look(6)
		return slices.Contains(by, names[0]) && slices.Contains(by, names[1])
	})
	elsewhere, there := fabric.Encoded()
	moved := fabric.Moved()
	for range 4 {
		look(3)
	}
	if now, same := fabric.Encoded(); now != elsewhere+12 || same != there {
		t.Errorf("%d of 12 pictures were encoded elsewhere, and %d at the server with the prompt", now-elsewhere, same-there)
	}
	if now := fabric.Moved(); now != moved+4 {
		t.Errorf("the KV of %d prompts moved, of 4", now-moved)
	}
	for _, s := range doubles[3].Seen() {
		if strings.Contains(string(s.Body), "ec_transfer_params") {
			t.Errorf("the decode server got %s", s.Body)
		}
	}
	if m := c.Metrics(); !regexp.MustCompile(`dynamo_component_images_total\{[^}]*"encode"[^}]*"computed"[^}]*\} [1-9]`).MatchString(m) {
		t.Error("no figure of what was encoded")
	}

	doubles[0].Close()
	for range 4 {
		if by := look(3); slices.Contains(by, names[0]) || len(by) != 3 {
			t.Errorf("encoded by %v, of which one is gone", by)
		}
	}
	c.serves(servers[0], false)
	_, before := fabric.Encoded()
	c.Insist(func(ctx context.Context) error {
		return c.Client.Drain(ctx, names[1], time.Now().Add(time.Minute), false)
	})
	c.WaitView("the other one is drained", func(v client.View) bool {
		return v.Status[names[1]].State == cluster.StateDrained && v.Status[names[1]].Drain.Safe
	})
	look(2)
	if _, now := fabric.Encoded(); now < before+2 {
		t.Errorf("%d pictures encoded by the server with the prompt", now-before)
	}
	if _, _, err := c.look(t.Context(), "QUJD"); err != nil {
		t.Error(err)
	}
	if wrong := fabric.Wrong(); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
}

// A simulator of vLLM that nobody here wrote encodes, and the server with the prompt is told what it
// says, byte for byte.
func TestEncodeSimulator(t *testing.T) {
	c := Start(t, Options{})
	e := seeing(attachSimulator(t, c, cluster.RoleEncode, "--mm-encoder-only"), c.Model)
	p := seeing(attachSimulator(t, c, cluster.RolePrefill), c.Model)
	d := seeing(attachSimulator(t, c, cluster.RoleDecode), c.Model)
	at, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []string // by the prefill server
	pass := httputil.NewSingleHostReverseProxy(at)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/chat/completions") {
			b, _ := io.ReadAll(r.Body)
			mu.Lock()
			got = append(got, string(b))
			mu.Unlock()
			r.Body = io.NopCloser(strings.NewReader(string(b)))
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	p.spec.Engine.Server.URL = between.URL
	c.attach(e, p, d)
	c.serving(map[cluster.Role]int{cluster.RoleEncode: 1, cluster.RolePrefill: 1, cluster.RoleDecode: 1})
	c.WaitView("the simulator encodes", func(client.View) bool {
		text, by, err := c.look(t.Context(), "QUJD", "QUJE")
		if err != nil || !strings.HasPrefix(text, "What is that?") {
			t.Fatalf("%q, %v", text, err)
		}
		return slices.Equal(by, []string{c.workerOf(e), c.workerOf(e)})
	})
	mu.Lock()
	defer mu.Unlock()
	var body struct {
		Messages json.RawMessage            `json:"messages"`
		Told     map[string]json.RawMessage `json:"ec_transfer_params"`
	}
	if err := json.Unmarshal([]byte(got[len(got)-1]), &body); err != nil {
		t.Fatal(err)
	}
	if len(body.Told) != 2 || strings.Count(string(body.Messages), `"uuid"`) != 2 {
		t.Errorf("the prefill server got %s", got[len(got)-1])
	}
	for name, told := range body.Told {
		if !strings.HasPrefix(name, "sim_img_0_") || !strings.Contains(string(told), `"peer_host":"DUMMY"`) {
			t.Errorf("%s: %s", name, told)
		}
	}
}
