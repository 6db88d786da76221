package doctor

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/recall/drawn"
)

// viewer is a model behind a frontend that sees pictures with the eyes of two encode workers
// in turn, which are workers 5 and 6. It knows what was drawn.
type viewer struct {
	blind map[string]int // "5 3": how many answers are wrong, -1 for all
	lazy  string         // this encode worker never encodes: the reader does
	idle  string         // this one is never chosen
	mute  bool           // tells nothing of images

	mu    sync.Mutex
	codes map[string]string // by URL
	asked int
}

func (v *viewer) draw() drawn.Picture {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := drawn.Draw(rand.New(rand.NewPCG(uint64(len(v.codes)), 7)), drawn.Code)
	ask, _ := p.Ask("code")
	v.codes[p.URL()] = ask.Answer
	return p
}

func (v *viewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Messages []struct {
			Content []struct {
				Image struct{ URL string } `json:"image_url"`
			}
		}
		NVExt openai.Extension
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	v.mu.Lock()
	defer v.mu.Unlock()
	encoder := fmt.Sprint("worker-", 5+v.asked%2)
	v.asked++
	if encoder == v.idle {
		encoder = "worker-5"
	}
	reader := q.NVExt.DecodeWorkerID
	if q.NVExt.Prefill == "remote" {
		reader = q.NVExt.PrefillWorkerID
	}
	ran := openai.Ran{Workers: &openai.Workers{}, Timing: &openai.RanTiming{Images: &openai.ImageTiming{Count: 1, EncodedBy: []string{encoder}}}}
	if encoder == v.lazy {
		ran.Timing.Images.EncodedBy, ran.Timing.Images.Why = nil, "no encode worker answers"
	}
	if v.mute {
		ran.Timing.Images = nil
	}
	answer := v.codes[q.Messages[0].Content[0].Image.URL]
	at := fmt.Sprintf("%s %d", strings.TrimPrefix(encoder, "worker-"), reader)
	if n := v.blind[at]; n != 0 {
		v.blind[at] = n - 1
		answer = "The code on the door is unknown."
	}
	extension, _ := json.Marshal(ran)
	clitest.Streams(fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%s},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"nvext\":%s}\n\ndata: [DONE]\n\n", clitest.Quoted(answer), extension))(w, r)
}

func TestSights(t *testing.T) {
	well := "sight worker-5 worker-3 ok, sight worker-6 worker-3 ok, sight worker-5 worker-2 ok, sight worker-6 worker-2 ok"
	for _, tc := range []struct {
		name       string
		model      *viewer
		want, text string
		asked      int
	}{
		{name: "well", want: well, text: "worker-2 sees what worker-6 has encoded", asked: 4},
		{name: "a small model errs", model: &viewer{blind: map[string]int{"5 3": 2}}, want: well, asked: 5 + 2},
		{
			name: "damaged on one way", model: &viewer{blind: map[string]int{"6 2": -1}}, asked: 2 + 8,
			want: "sight worker-5 worker-3 ok, sight worker-6 worker-3 ok, sight worker-5 worker-2 ok, sight worker-6 worker-2 fail",
			text: "worker-2 cannot tell what is in pictures that worker-6 encoded: the embeddings arrived damaged",
		},
		{
			name: "one does not encode", model: &viewer{lazy: "worker-6"}, asked: 2 * 2 * sightTries,
			want: "sight worker-5 worker-3 ok, sight worker-6 worker-3 fail, sight worker-5 worker-2 ok, sight worker-6 worker-2 fail",
			text: "worker-3 encoded images itself: no encode worker answers",
		},
		{
			name: "one is never chosen", model: &viewer{idle: "worker-6"}, asked: 2 * 2 * sightTries,
			want: "sight worker-5 worker-3 ok, sight worker-6 worker-3 skip, sight worker-5 worker-2 ok, sight worker-6 worker-2 skip", text: "no picture fell to worker-6",
		},
		{name: "a frontend that does not tell", model: &viewer{mute: true}, asked: 2, want: "sight worker-3 skip, sight worker-2 skip", text: "does not report which workers encoded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tc.model
			if m == nil {
				m = &viewer{}
			}
			m.codes = map[string]string{}
			r := recallCheck{timeout: time.Minute, model: "tiny", c: talk(t, m), draw: m.draw}
			workers := recallWorkers(1, 1)
			for id := 5; id <= 6; id++ {
				workers = append(workers, cluster.Worker{WorkerStatus: cluster.WorkerStatus{Name: fmt.Sprint("worker-", id), InstanceID: cluster.InstanceID(id), Role: cluster.RoleEncode, State: cluster.StateReady}})
			}
			found(t, r.sights(t.Context(), workers), tc.want, tc.text)
			if m.asked != tc.asked {
				t.Errorf("%d questions, want %d", m.asked, tc.asked)
			}
			if found := r.sights(t.Context(), workers[:2]); found != nil {
				t.Errorf("without encode workers: %+v", found)
			}
		})
	}
}

// Without an answer nothing is known of embeddings.
func TestSightsWithoutAnAnswer(t *testing.T) {
	f := clitest.NewFrontend(t, clitest.Refuses(503, "1", "", "No worker."))
	c, err := openai.New(f.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := recallCheck{timeout: time.Minute, model: "tiny", c: c, draw: drawDoor}
	workers := recallWorkers(0, 1)
	workers = append(workers, cluster.Worker{WorkerStatus: cluster.WorkerStatus{Name: "worker-5", InstanceID: 5, Role: cluster.RoleEncode, State: cluster.StateReady}})
	if found := r.sights(t.Context(), workers); len(found) != 1 || found[0].Status != judge.Fail || found[0].Name != "sight worker-3" {
		t.Errorf("%+v", found)
	}
}
