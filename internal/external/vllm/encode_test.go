package vllm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external/externaltest"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// What a server tells of embeddings is bounded, and is an object: it goes to another server.
func TestEncodeTold(t *testing.T) {
	var told string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"choices":[]%s}`, told)
	}))
	defer server.Close()
	e, err := New(wire.Config{URL: server.URL, Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	long := `{"a":"` + strings.Repeat("x", maxEmbedded) + `"}`
	for text, want := range map[string]string{
		"": "", `,"ec_transfer_params":null`: "", `,"ec_transfer_params":{"a" : 1.0}`: `{"a" : 1.0}`,
		`,"ec_transfer_params":[1]`: "not an object", `,"ec_transfer_params":` + long: "longer than",
	} {
		told = text
		got, err := e.Encode(t.Context(), externaltest.AskBody(protocol.APIChat, externaltest.Show(externaltest.Picture)))
		if err == nil && string(got) != want || (err != nil) != strings.Contains(text, "[1]") && (err != nil) != (len(text) > maxEmbedded) {
			t.Errorf("%.40s: %.40s, %v", text, got, err)
		}
		if err != nil && !strings.Contains(externaltest.Kind(t, err, requestplane.KindUnavailable).Message, want) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	r := externaltest.AskBody(protocol.APIChat, externaltest.Show(externaltest.Picture))
	for range 9 {
		r.Encoded = append(r.Encoded, json.RawMessage(`{"a":"`+strings.Repeat("x", maxEmbedded-10)+`"}`))
	}
	_, err = externaltest.Collect(t.Context(), t, e, r)
	if remote := externaltest.Kind(t, err, requestplane.KindUnavailable); !strings.Contains(remote.Message, "together") {
		t.Error(remote)
	}
}
