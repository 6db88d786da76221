package frontend

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Bodies may be compressed. The limit is that of what is in them.
func TestCompressedBodies(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("ab"))
	f := w.configured(func(c *Config) { c.BodyLimit = 256 << 10 }).waitModel(1)
	pack := func(text string, to func(io.Writer) io.WriteCloser) string {
		var b bytes.Buffer
		z := to(&b)
		io.WriteString(z, text)
		z.Close()
		return b.String()
	}
	zip := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	deflate := func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
	good, err := json.Marshal(textBody(nil))
	if err != nil {
		t.Fatal(err)
	}
	large := `{"model":"tiny","user":"` + strings.Repeat("x", 200<<10) + `","prompt":"a"}`
	huge := `{"model":"tiny","user":"` + strings.Repeat("x", 300<<10) + `","prompt":"a"}`
	for _, tt := range []struct {
		name, encoding, body string
		want                 int
	}{
		{"none", "", string(good), 200},
		{"identity", "identity", string(good), 200},
		{"gzip", "gzip", pack(string(good), zip), 200},
		{"in capitals", "GZIP", pack(string(good), zip), 200},
		{"deflate", "deflate", pack(string(good), deflate), 200},
		{"large", "gzip", pack(large, zip), 200},
		{"too large", "gzip", pack(huge, zip), 413},
		{"not gzip", "gzip", string(good), 400},
		{"cut off", "gzip", pack(large, zip)[:150], 400},
		{"unknown", "br", string(good), 415},
		{"twice", "gzip, gzip", pack(pack(string(good), zip), zip), 415},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/completions", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Encoding", tt.encoding)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer := readAll(t, resp)
		if resp.StatusCode != tt.want || tt.want == 415 && resp.Header.Get("Accept-Encoding") != "gzip, deflate" {
			t.Errorf("%s: status %d, want %d: %s", tt.name, resp.StatusCode, tt.want, answer)
		}
	}
}

// TestHostileBodies: what is refused costs a small multiple of its bytes, whatever it
// would become. The error names the limit.
func TestHostileBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of MiB, one after the other")
	}
	w := newWorld(t)
	w.fake("worker-1", say("ab"))
	f := w.configured(func(c *Config) { c.BodyLimit = 64 << 20 }).waitModel(1)
	const chat, text = "/v1/chat/completions", "/v1/completions"
	const n = 300_000
	in := func(field, value string) string {
		return `{"model":"tiny","messages":[{"role":"user","content":"a"}],"` + field + `":` + value + `}`
	}
	list := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	ids := list("1", n)
	long := strings.Repeat("a b ", 2<<20)
	message := func(m string) string { return `{"model":"tiny","messages":[` + m + `]}` }
	for name, tc := range map[string]struct{ path, body, code, says string }{
		"one long message":     {chat, message(`{"role":"user","content":"` + long + `"}`), "context_length_exceeded", "at least"},
		"escaped message":      {chat, message(`{"role":"user","content":"` + strings.Repeat(`\u0061`, 1<<20) + `"}`), "context_length_exceeded", "at least"},
		"one long prompt":      {text, `{"model":"tiny","prompt":"` + long + `"}`, "context_length_exceeded", "at least"},
		"long prompts":         {text, `{"model":"tiny","prompt":` + list(`"`+long[:1<<16]+`"`, 100) + `}`, "context_length_exceeded", "at least"},
		"tiny messages":        {chat, message(strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"a"},`, n), ",")), "invalid_value", "65536 messages"},
		"tiny parts":           {chat, message(`{"role":"user","content":` + list(`{"type":"text","text":"a"}`, n) + `}`), "invalid_value", "65536 parts"},
		"tiny calls":           {chat, message(`{"role":"assistant","tool_calls":` + list(`{"function":{"name":"f"}}`, n) + `}`), "invalid_value", "65536 calls"},
		"values in a message":  {chat, message(`{"role":"user","content":"a","x":` + list("{}", 2*n) + `}`), "invalid_value", "262144"},
		"values in arguments":  {chat, in("chat_template_kwargs", `{"x":`+list("[]", 2*n)+`}`), "invalid_value", "262144"},
		"tiny tools":           {chat, in("tools", list(`{"type":"function","function":{"name":"f"}}`, n)), "invalid_value", "1536"},
		"a huge forced schema": {chat, in("tool_choice", `"required","tools":[{"type":"function","function":{"name":"f","parameters":{"x":`+list("{}", 4*n)+`}}}]`), "invalid_value", "2097152"},
		"a huge schema":        {chat, in("response_format", `{"type":"json_schema","json_schema":{"name":"a","schema":{"x":`+list("{}", 4*n)+`}}}`), "invalid_value", "2097152"},
		"many choices":         {chat, in("guided_choice", list(`""`, 4*n)), "invalid_value", "2097152"},
		"a huge regex":         {chat, in("guided_regex", `"`+long+`"`), "invalid_value", "2097152"},
		"logit_bias":           {chat, in("logit_bias", "{"+keys(n)+"}"), "invalid_value", "members"},
		"stop strings":         {chat, in("stop", list(`"`+strings.Repeat("x", 5000)+`"`, 3)), "invalid_value", "4096"},
		"all stop strings":     {chat, in("stop", list(`"`+strings.Repeat("x", 4000)+`"`, 32)), "invalid_value", "16384"},
		"many stop strings":    {chat, in("stop", list(`"x"`, n)), "invalid_value", "32"},
		"stop ids":             {chat, in("stop_token_ids", ids), "invalid_value", "1024"},
		"token ids":            {text, `{"model":"tiny","prompt":` + ids + `}`, "context_length_exceeded", "at least 513"},
		"lists of token ids":   {text, `{"model":"tiny","prompt":` + list("[1]", n) + `}`, "invalid_value", "128"},
		"bad words":            {chat, in("bad_words", list(`"x"`, n)), "invalid_value", "1024"},
		"a long bad word":      {chat, in("bad_words", `["`+long+`"]`), "invalid_value", "1024"},
		"ids of a bad word":    {chat, in("bad_words_token_ids", "["+ids+"]"), "invalid_value", "1024"},
		"extra fields":         {chat, in("nvext", `{"extra_fields":`+list(`"timing"`, n)+`}`), "invalid_type", ""},
		"members":              {chat, "{" + keys(n) + "}", "", "members"},
		"nested":               {chat, in("metadata", strings.Repeat("[", 1<<20)+strings.Repeat("]", 1<<20)), "", ""},
		"a long role":          {chat, message(`{"role":"` + long + `","content":"a"}`), "invalid_value", "is not one of"},
		"a long name":          {chat, `{"` + long + `":1}`, "unknown_parameter", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			rec := httptest.NewRecorder()
			f.srv.Handler.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(tc.body)))
			runtime.ReadMemStats(&after)
			answer := rec.Body.Bytes()
			var e envelope
			if err := json.Unmarshal(answer, &e); err != nil {
				t.Fatalf("%v: %.300s", err, answer)
			}
			if rec.Code != 400 || tc.code != "" && e.code() != tc.code || !strings.Contains(e.Error.Message, tc.says) || len(answer) > 4*maxEcho {
				t.Errorf("status %d, code %q, %.300s; want %q, ...%s...", rec.Code, e.code(), answer, tc.code, tc.says)
			}
			took, most := int(after.TotalAlloc-before.TotalAlloc), 8*len(tc.body)+64<<20
			if took > most {
				t.Errorf("%d bytes allocated for a body of %d", took, len(tc.body))
			}
		})
	}
}

// keys are so many members of an object, all different.
func keys(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for k := i; ; k /= 10 {
			b.WriteByte('0' + byte(k%10))
			if k < 10 {
				break
			}
		}
		b.WriteString(`":1`)
	}
	return b.String()
}

// TestTurns: requests go on in order, so many at a time; what waits is bounded in number
// and in time.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newBudget(1, 2)
		take := func(ctx context.Context, tenant string, wait time.Duration) (func(), *apiError) {
			r, bad := turns.reserve(ctx, tenant, 1, wait, nil)
			if bad != nil {
				return nil, bad
			}
			return r.release, nil
		}
		leave, bad := take(t.Context(), "a", time.Second)
		if bad != nil {
			t.Fatal(bad)
		}
		order := make(chan int, 2)
		for i := range 2 {
			go func() {
				leave, bad := take(t.Context(), "a", time.Minute)
				if bad != nil {
					t.Error(bad)
					return
				}
				order <- i
				leave()
			}()
			synctest.Wait()
		}
		if _, bad := take(t.Context(), "a", time.Minute); bad == nil || bad.status != 503 || bad.retryAfter == 0 {
			t.Errorf("behind the queue: %v", bad)
		}
		leave()
		leave() // again means nothing
		if a, b := <-order, <-order; a != 0 || b != 1 {
			t.Errorf("order %d, %d", a, b)
		}
		leave, _ = take(t.Context(), "a", time.Second)
		defer leave()
		begin := time.Now()
		if _, bad := take(t.Context(), "a", time.Second); bad == nil || time.Since(begin) != time.Second {
			t.Errorf("waited %v: %v", time.Since(begin), bad)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStopping)
		if _, bad := take(ctx, "a", time.Second); bad == nil || bad.Message != shuttingDown().Message {
			t.Errorf("stopped: %v", bad)
		}
	})
}

// TestTurnsBetweenTenants: who sends many large requests waits for itself.
func TestTurnsBetweenTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1, 4)
		first, bad := b.reserve(t.Context(), "many", 1, time.Minute, nil)
		if bad != nil {
			t.Fatal(bad)
		}
		order := make(chan string, 5)
		ask := func(tenant string) {
			go func() {
				r, bad := b.reserve(t.Context(), tenant, 1, time.Minute, nil)
				if bad != nil {
					order <- tenant + " refused"
					return
				}
				order <- tenant
				r.release()
			}()
			synctest.Wait()
		}
		for range 4 {
			ask("many")
		}
		ask("few") // the queue is full: of those that wait, the newest of many goes
		if got := <-order; got != "many refused" {
			t.Error(got)
		}
		first.release()
		synctest.Wait()
		var got []string
		for range 4 {
			got = append(got, <-order)
		}
		if want := []string{"few", "many", "many", "many"}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
		if b.free != b.total || b.queue.Len() > 0 {
			t.Errorf("%d of %d are free, %d wait", b.free, b.total, b.queue.Len())
		}
	})
}

// TestByteBudget: bodies wait for memory in order, and those that come too slowly go
// when others wait.
func TestByteBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100<<20, waitingLarge)
		cut := make(chan string, 3)
		reserve := func(name string, n int64) *reservation {
			r, bad := b.reserve(t.Context(), "a", n, 10*time.Second, func() { cut <- name })
			if bad != nil {
				t.Errorf("%s: %v", name, bad)
				return &reservation{b: b}
			}
			return r
		}
		slow, quick := reserve("slow", 60<<20), reserve("quick", 30<<20)
		quick.got.Store(30 << 20)
		time.Sleep(5 * time.Second)
		if len(cut) > 0 {
			t.Error("a body is cut although nobody waits")
		}
		got := make(chan string)
		go func() {
			r := reserve("large", 80<<20)
			got <- "large"
			r.release()
		}()
		synctest.Wait()
		go func() {
			r := reserve("small", 1<<20)
			got <- "small"
			r.release()
		}()
		if name := <-cut; name != "slow" || len(cut) > 0 || !slow.slow.Load() {
			t.Errorf("%s is cut", name)
		}
		slow.release()
		quick.read(20 << 20) // chunked: shorter than it might have been
		if first, second := <-got, <-got; first != "large" || second != "small" {
			t.Errorf("%s goes before %s", first, second)
		}
		synctest.Wait()
		if b.free != 80<<20 {
			t.Errorf("%d bytes are free", b.free)
		}
		quick.release()
		all := reserve("more than there is", 1<<40)
		begin := time.Now()
		if _, bad := b.reserve(t.Context(), "a", 1, time.Second, func() {}); bad == nil || bad.status != 503 || time.Since(begin) != time.Second {
			t.Errorf("waited %v: %v", time.Since(begin), bad)
		}
		all.release()
		if b.free != b.total || b.queue.Len() > 0 || len(b.uploads) > 0 {
			t.Errorf("%d of %d bytes are free, %d wait, %d are read", b.free, b.total, b.queue.Len(), len(b.uploads))
		}
	})
}

// TestLargeBodiesWaitApart: small requests do not wait for large ones, whose memory is
// given back however they end.
func TestLargeBodiesWaitApart(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("ab"))
	f := w.frontend(func(f *Frontend) { f.limits.intake = 20 * time.Millisecond }).waitModel(1)
	others, bad := f.intake.large.reserve(t.Context(), "others", f.intake.large.total, time.Minute, nil) // as if they were prepared
	if bad != nil {
		t.Fatal(bad)
	}
	large := textBody(body{"prompt": strings.Repeat("a ", smallBody)})
	resp := f.post("/v1/completions", large)
	if e := failureOf(t, resp); resp.StatusCode != 503 || e.code() != "overloaded" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("large: %d, %v", resp.StatusCode, e)
	}
	if resp := f.post("/v1/completions", textBody(nil)); resp.StatusCode != 200 {
		t.Errorf("small: %d", resp.StatusCode)
	} else if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Body.Close() != nil {
		t.Error(err)
	}
	others.release()
	for _, chunked := range []bool{false, true} {
		raw, err := json.Marshal(large)
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequest(http.MethodPost, "/v1/completions", bytes.NewReader(raw))
		if chunked {
			req.ContentLength = -1
		}
		rec := httptest.NewRecorder()
		f.srv.Handler.ServeHTTP(rec, req)
		if rec.Code != 400 || !strings.Contains(rec.Body.String(), "context_length_exceeded") {
			t.Errorf("chunked %v: %d, %s", chunked, rec.Code, rec.Body)
		}
	}
	for name, b := range map[string]*budget{"bodies": f.intake.bodies, "small": f.intake.small, "large": f.intake.large} {
		b.mu.Lock()
		if b.free != b.total {
			t.Errorf("%s: %d of %d are free", name, b.free, b.total)
		}
		b.mu.Unlock()
	}
}
