package prepare

import (
	"errors"
	"strings"
	"testing"
)

// The tokens of Qwen-VL stand in the grid of merged patches, those of others nowhere.
func TestPlaces(t *testing.T) {
	load := func(preprocessor, processor string) *Processor {
		t.Helper()
		p, err := Load(Files{Preprocessor: []byte(preprocessor), Processor: []byte(processor)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	qwen := load(`{"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}`, `{"processor_class": "Qwen2_5_VLProcessor"}`)
	llava := load(`{"size": 28, "crop_size": 28}`, `{"processor_class": "LlavaProcessor", "patch_size": 14}`)
	if plan, err := qwen.Plan(280, 140); err != nil || plan.Places != [3]int{1, 5, 10} || plan.Tokens != 50 || plan.Grid.H != 10 || plan.Grid.W != 20 {
		t.Errorf("%+v %v", plan, err)
	}
	if plan, err := llava.Plan(280, 140); err != nil || plan.Places != [3]int{} {
		t.Errorf("%+v %v", plan, err)
	}
	if patch, frames, merge := qwen.Cuts(); patch != 14 || frames != 2 || merge != 2 {
		t.Error(patch, frames, merge)
	}
	if patch, frames, merge := llava.Cuts(); patch != 0 || frames != 0 || merge != 0 {
		t.Error(patch, frames, merge)
	}
	for _, tc := range []struct {
		p    *Processor
		rows int
		grid [3]int
		want [3]int
		bad  string
	}{
		{qwen, 6, [3]int{1, 4, 6}, [3]int{1, 2, 3}, ""},
		{qwen, 6, [3]int{}, [3]int{}, "need the grid of their patches beside them: image_grid_thw"},
		{qwen, 5, [3]int{1, 4, 6}, [3]int{}, "1 × 4 × 6 patches"},
		{qwen, 6, [3]int{1, 5, 6}, [3]int{}, "1 × 5 × 6 patches"},
		{qwen, 6, [3]int{1, 4, 7}, [3]int{}, "1 × 4 × 7 patches"},
		{qwen, 12, [3]int{2, 4, 6}, [3]int{}, "2 × 4 × 6 patches"},
		{llava, 7, [3]int{}, [3]int{}, ""},
		{llava, 6, [3]int{1, 4, 6}, [3]int{}, ""},
	} {
		plan, err := tc.p.PlanRows(tc.rows, tc.grid)
		switch {
		case tc.bad != "" && (!errors.Is(err, ErrPicture) || !strings.Contains(err.Error(), tc.bad)):
			t.Errorf("%d rows in %v: %v", tc.rows, tc.grid, err)
		case tc.bad == "" && (err != nil || plan.Tokens != tc.rows || plan.Places != tc.want || plan.Text != strings.Repeat(tc.p.Placeholder(), tc.rows)):
			t.Errorf("%d rows in %v: %+v %v", tc.rows, tc.grid, plan, err)
		}
	}
}

// Ready-made rows of Gemma 3 are told where they begin and end; those of tiles stand alone,
// without the names of tiles.
func TestTextAroundRows(t *testing.T) {
	for class, want := range map[string]string{
		"Gemma3Processor":  "\n\n<start_of_image><image_soft_token><image_soft_token><end_of_image>\n\n",
		"SmolVLMProcessor": "<image><image>",
	} {
		about := `{"processor_class": "` + class + `"}`
		p, err := Load(Files{Preprocessor: []byte(about), Config: []byte(`{"vision_config": {"patch_size": 14, "image_size": 28}}`)})
		if err != nil {
			t.Fatal(err)
		}
		if plan, err := p.PlanRows(2, [3]int{}); err != nil || plan != (Plan{Tokens: 2, Text: want}) {
			t.Errorf("%s: %+v %v", class, plan, err)
		}
	}
}
