package cpu

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/patience"
)

// noticed is the least difference that a change has to make: five times what the
// comparison with the references allows.
const noticed = 5 * visionBound

// TestVisionNotices changes one field of a recorded checkpoint at a time, in vision_config
// or beside it: the rows must differ from the recorded ones.
func TestVisionNotices(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	type object = map[string]any
	for _, tt := range []struct {
		golden        string
		outer, vision object
	}{
		{"smolvlm", nil, object{"hidden_act": "gelu"}},
		{"smolvlm", nil, object{"layer_norm_eps": 1e-6}},
		{"smolvlm", nil, object{"num_attention_heads": 4}},
		{"smolvlm", nil, object{"num_hidden_layers": 1}},
		{"idefics3", nil, object{"hidden_act": "gelu_pytorch_tanh"}},
		{"idefics3", nil, object{"hidden_act": "quick_gelu"}},
		{"llava", object{"vision_feature_layer": -1}, nil},
		{"llava", object{"vision_feature_layer": -3}, nil},
		{"llava", object{"vision_feature_layer": 0}, nil}, // no layer at all
		{"llava", object{"projector_hidden_act": "gelu_pytorch_tanh"}, nil},
		{"llava", object{"multimodal_projector_bias": false}, nil},
		{"llava", nil, object{"hidden_act": "gelu"}},
		{"llava", nil, object{"layer_norm_eps": 1e-5}},
		{"llava-full", object{"vision_feature_layer": 3}, nil},
		{"llava-full", object{"projector_hidden_act": "gelu"}, nil},
		{"llava-siglip", object{"vision_feature_layer": -2}, nil},
		{"llava-siglip", nil, object{"hidden_act": "gelu_pytorch_tanh"}},
		{"gemma3-images", nil, object{"layer_norm_eps": 1e-6}},
		{"gemma3-images", nil, object{"hidden_act": "gelu"}},
		{"qwen2-vl", nil, object{"num_heads": 1}},
		{"qwen2-vl", nil, object{"hidden_act": "gelu_pytorch_tanh"}},
		{"qwen2-vl-images", nil, object{"hidden_act": "quick_gelu"}},
		{"qwen2-vl-images", nil, object{"depth": 2}},
		{"qwen2.5-vl", nil, object{"window_size": 16}},
		{"qwen2.5-vl", nil, object{"window_size": 32}},
		{"qwen2.5-vl", nil, object{"fullatt_block_indexes": []int{0}}},
		{"qwen2.5-vl", nil, object{"fullatt_block_indexes": []int{}}},
		{"qwen2.5-vl", nil, object{"fullatt_block_indexes": []int{0, 1, 2}}},
		{"qwen2.5-vl-images", nil, object{"window_size": 24}},
	} {
		g := readGolden(t, "testdata/families/"+tt.golden+".json")
		config := make(object)
		if err := json.Unmarshal(g.Config, &config); err != nil {
			t.Fatal(err)
		}
		maps.Copy(config, tt.outer)
		maps.Copy(config["vision_config"].(object), tt.vision)
		g.Config, _ = json.Marshal(config)
		m, err := model.Open(g.write(t), model.Options{})
		if errors.Is(err, model.ErrWeights) || errors.Is(err, model.ErrConfig) || errors.Is(err, model.ErrUnsupported) {
			t.Errorf("%s with %v %v: refused, so it shows nothing: %v", tt.golden, tt.outer, tt.vision, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := apart(encode(t, newEncoder(t, newTestDevice(t, 1), m), g.views()...), g.rows()); got < noticed {
			t.Errorf("%s with %v %v: rows differ by %v of the largest value only", tt.golden, tt.outer, tt.vision, got)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVisionNoticesTensors halves one tensor at a time: each one that the projector's
// input depends on must change the rows, and no other one.
func TestVisionNoticesTensors(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	// A bias of keys adds the same to all scores of a query, which changes no weight.
	without := func(name string) bool { return strings.HasSuffix(name, "k_proj.bias") }
	for _, name := range []string{"idefics3", "llava", "gemma3-images", "qwen2-vl-images", "qwen2.5-vl"} { // all roles
		g := readGolden(t, "testdata/families/"+name+".json")
		m := openGolden(t, g)
		used := map[string]bool{}
		for _, spec := range m.Tensors() {
			used[spec.Name] = spec.Role.Vision()
		}
		n := 0
		for i, tensor := range g.Tensors {
			if !used[tensor.name] {
				continue
			}
			n++
			changed := g
			changed.Tensors = append([]goldenTensor{}, g.Tensors...)
			changed.Tensors[i].factor = 0.5
			got := apart(encode(t, newEncoder(t, newTestDevice(t, 1), openGolden(t, changed)), g.views()...), g.rows())
			if got < noticed != without(tensor.name) {
				t.Errorf("%s: half of %s changes the rows by %v of the largest value", name, tensor.name, got)
			}
		}
		if n < 35 {
			t.Errorf("%s: %d tensors", name, n)
		}
	}
}

// TestVisionNoticesViews: pixels and masks count.
func TestVisionNoticesViews(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	g := readGolden(t, "testdata/families/idefics3.json")
	e := newEncoder(t, newTestDevice(t, 1), openGolden(t, g))
	for i := range g.Views {
		want := floats(g.Views[i].Rows)
		v := g.view(i)
		size := e.tower.PatchSize
		for _, at := range []int{0, size - 1, len(v.Pixels) - 1, v.W*v.H + v.W*(size-1)} {
			old := v.Pixels[at]
			v.Pixels[at] += 3
			if got := apart(encode(t, e, v), want); got < noticed {
				t.Errorf("view %d: pixel %d changes the rows by %v of the largest value", i, at, got)
			}
			v.Pixels[at] = old
		}
		if v.Mask != nil {
			v.Mask = nil
			if got := apart(encode(t, e, v), want); got < noticed {
				t.Errorf("view %d: its mask changes the rows by %v of the largest value", i, got)
			}
		}
	}
}
