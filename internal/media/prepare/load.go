package prepare

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/media/picture"
)

// Names of the files that describe a processor.
const (
	preprocessorName = "preprocessor_config.json"
	processorName    = "processor_config.json"
	configName       = "config.json"
)

// Files are the contents of the files that describe a processor. A file that the
// checkpoint lacks is nil. One of the first two is needed.
type Files struct {
	Preprocessor []byte // preprocessor_config.json
	Processor    []byte // processor_config.json
	Config       []byte // config.json: what it says of the vision tower
}

// family is a way to cut pictures and to write them into the prompt.
type family interface {
	plan(w, h int) (Plan, error) // without its text
	text(p Plan) string
	prepare(m *picture.Image, in *Input) error
	planRows(n int, grid [3]int) (Plan, error)                                // as Processor.PlanRows
	arrange(p Plan, rows [][]float32, newline []float32) ([][]float32, error) // as Processor.Arrange; it need not count
	cuts() (patch, frames, merge int)                                         // as Processor.Cuts
	low() family                                                              // as Processor.Low; nil: the same
}

// plain is what most families have in common.
type plain struct {
	image string // the token that stands for an embedding
}

func (f plain) text(p Plan) string { return strings.Repeat(f.image, p.Tokens) }

func (f plain) planRows(n int, _ [3]int) (Plan, error) {
	return Plan{Tokens: n, Text: strings.Repeat(f.image, n)}, nil
}

func (plain) arrange(_ Plan, rows [][]float32, _ []float32) ([][]float32, error) { return rows, nil }

func (plain) cuts() (patch, frames, merge int) { return 0, 0, 0 }

func (plain) low() family { return nil }

// families are the kinds of processors, by the name of the class in files and by the
// type of the model in config.json, with the class that prepares pictures by default.
var families = []struct {
	names       []string
	placeholder string
	overWhite   bool
	class       string
	load        func(l *loader) family
}{
	{[]string{"Idefics3Processor", "SmolVLMProcessor", "idefics3", "smolvlm"}, "<image>", true, "Idefics3ImageProcessor", loadTiles},
	{[]string{"LlavaProcessor", "llava"}, "<image>", false, "CLIPImageProcessor", loadCrop},
	{[]string{"LlavaNextProcessor", "llava_next"}, "<image>", false, "LlavaNextImageProcessor", loadAnyRes},
	{[]string{"Gemma3Processor", "gemma3"}, "<start_of_image>", false, "Gemma3ImageProcessor", loadGemma},
	{[]string{"Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"}, "<|image_pad|>", false, "Qwen2VLImageProcessor", loadPatches},
}

// loader is what a family reads.
type loader struct {
	class     string // of the image processor
	settings  fields // of it, with defaults
	processor fields // processor_config.json
	vision    fields // vision_config of config.json
	config    fields
	plain     plain
	colors    *colors
}

// Processor prepares pictures for one checkpoint.
type Processor struct {
	family      family
	placeholder string
	overWhite   bool
	low         *Processor // nil: the same
}

// Load reads the description of a processor. An error is a [FieldError].
func Load(files Files) (*Processor, error) {
	var err error
	l := &loader{
		processor: parse(processorName, files.Processor, &err),
		config:    parse(configName, files.Config, &err),
	}
	l.vision = l.config.object("vision_config")
	image := parse(preprocessorName, files.Preprocessor, &err)
	if files.Preprocessor == nil { // newer checkpoints nest one file in the other
		if !l.processor.has("image_processor") {
			return nil, &FieldError{preprocessorName, "", ErrConfig, "missing, and " + processorName + " has no image_processor"}
		}
		image = l.processor.object("image_processor")
	}
	name := l.processor.text("processor_class", image.text("processor_class", l.config.text("model_type", "")))
	if err != nil {
		return nil, err
	}
	for _, known := range families {
		for _, n := range known.names {
			if n != name {
				continue
			}
			p := &Processor{placeholder: known.placeholder, overWhite: known.overWhite}
			l.plain = plain{known.placeholder}
			l.class, l.settings = class(image, known.class)
			l.colors = l.settings.colors()
			p.family = known.load(l)
			if low := p.family.low(); low != nil {
				p.low = &Processor{family: low, placeholder: p.placeholder, overWhite: p.overWhite}
			}
			return p, err
		}
	}
	return nil, &FieldError{processorName, "processor_class", ErrUnsupported, fmt.Sprintf("%q", name)}
}

// processorFields refuses unknown fields of processor_config.json.
func (l *loader) processorFields(names ...string) {
	l.processor.onlyKnown(append(names, "processor_class", "image_processor", "video_processor", "chat_template", "auto_map")...)
}

// class refuses image processors that the family does not go with.
func (l *loader) want(classes ...string) {
	for _, c := range classes {
		if c == l.class {
			return
		}
	}
	l.settings.fail("image_processor_type", ErrUnsupported, fmt.Sprintf("%q for this family", l.class))
}

// Placeholder is the text that stands for one image in a prompt, as the chat template
// writes it. [Plan.Text] replaces it.
func (p *Processor) Placeholder() string { return p.placeholder }

// Low returns the processor for pictures of which no details are wanted: for SmolVLM and
// Idefics3 one that computes the whole view and no tiles, as their do_image_splitting switches
// off. The other families have one way, and it returns p.
func (p *Processor) Low() *Processor {
	if p.low != nil {
		return p.low
	}
	return p
}

// PlanRows says what stands for a picture whose n embeddings come ready-made: as many image
// tokens, whatever else is around pictures of the family. Gemma 3 is told where each of its
// pictures begins and ends, and Qwen-VL needs the grid of the patches: frames, rows and columns,
// zero if it is unknown. An error matches ErrPicture.
func (p *Processor) PlanRows(n int, grid [3]int) (Plan, error) {
	return p.family.planRows(n, grid)
}

// DecodeOptions are those with which the processor wants pictures to be decoded.
func (p *Processor) DecodeOptions() picture.Options { return picture.Options{OverWhite: p.overWhite} }
