package drawn

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// Ask is a question about a picture.
type Ask struct {
	Topic string // "code", "count circle" …
	// Ways are texts of the question, the usual one first; the training of the built-in
	// model asks so, and measurements in the Held ways, which are not in it.
	Ways, Held []string
	Answer     string // a sentence
	// Key is what a right answer contains and a wrong one does not.
	Key string
}

// Right reports whether a text answers the question.
func (a Ask) Right(text string) bool { return strings.Contains(text, a.Key) }

// Text is the usual text of the question.
func (a Ask) Text() string { return a.Ways[0] }

// patterns are the texts of the questions, the usual one first. {a|b} stands for either
// text, and %s for the name of a shape.
var patterns = map[string][]string{
	"code": {
		"Which code is on the door?", "{Which|What} {code|number|digits} {is|are|do you see} on {the|this} door?", "{What|which} code does {the|this} door have?",
		"{What|what} is the {code|number} {on|of} the door?", "{Read|Tell me|Give me|Say} the {code|number} {on|of} the door{.|}", "{What|what} is {written|printed|shown} on the door?",
		"{Which|What} {code|number} do you {see|read}?", "{I need|Please read} the code {on|of} the door.", "{Code|Number} {on|of} the door?",
	},
	"door": {
		"Which color is the door?", "{What|Which|which} color {is|has} the door?", "{Tell me|Name|Say} the color of the door{.|}", "{What|what} is the color of the door?",
		"{What|Which} color does the door have?", "In {which|what} color is the door{| painted}?", "The door is of {which|what} color?",
	},
	"what": {
		"What do you see?", "{What|what} is {in|on} {the|this} {picture|image}?", "{What|what} does {the|this} {picture|image} show?", "{Describe|Look at} the {picture|image}{.|}",
		"{What|what} {is this|is shown|can you see}?", "{What|what} do you see {here|in the picture}?",
	},
	"highest": {
		"Which bar is the highest?", "{Which|What|which} bar is {the |}{highest|tallest|largest}?", "{What|what} is the {highest|tallest|largest} bar?",
		"{Name|Tell me|Find} the {highest|tallest|largest} bar{.|}", "{Which|which} {one|bar} is {highest|tallest} in the chart?", "Which bar has the {highest|largest} value?",
	},
	"highest color": {
		"Which color is the highest bar?", "{What|Which|which} color {is|has} the {highest|tallest|largest} bar?", "{What|what} is the color of the {highest|tallest|largest} bar?",
		"{Tell me|Name|Say} the color of the {highest|tallest|largest} bar{.|}", "{What|Which} color does the {highest|tallest} bar have?",
	},
	"busiest": {
		"Which worker is the busiest?", "{Which|What|which} worker is {the |}{busiest|most busy}?", "{What|what} is the busiest worker?", "{Name|Tell me|Find} the busiest worker{.|}",
		"{Which|which} worker has {most|the most|more} {to do|work}?", "{Which|which} {one|worker} is busiest in the panel?", "Which worker {works|does} {most|the most}?",
	},
	"place": {
		"Where is the %s?", "{Where|where} {is|do you see|can I find} the %s?", "In {which|what} corner is the %s?", "{Where|where} is the %s in the {picture|image}?",
		"{Tell me|Say} where the %s is{.|}", "{What|what} is the place of the %s?",
	},
	"color": {
		"Which color is the %s?", "{What|Which|which} color {is|has} the %s?", "{Tell me|Name|Say} the color of the %s{.|}", "{What|what} is the color of the %s?",
		"{What|Which} color does the %s have?", "The %s is of {which|what} color?",
	},
	"count": {
		"How many %ss are there?", "{How|how} many %ss {are there|do you see|can you see|are shown}?", "{Count|count|Please count} the %ss{.|}",
		"{How|how} many %ss are in the {picture|image}?", "{What|what} is the number of %ss?", "{Tell me|Say} how many %ss there are{.|}", "Number of %ss?",
	},
	"leftmost":  outermost("left"),
	"rightmost": outermost("right"),
}

func outermost(side string) []string {
	var out []string
	for _, p := range []string{
		"Which shape is #most?", "{Which|What|which} shape is {#most|on the #|farthest #}?", "{What|what} is {the #most shape|on the #|farthest to the #}?",
		"{Name|Tell me|Find} the #most {shape|one}{.|}", "{Which|which} one is {#most|on the #}?",
	} {
		out = append(out, strings.ReplaceAll(p, "#", side))
	}
	return out
}

// variants returns all texts of a pattern.
func variants(pattern string) []string {
	before, rest, ok := strings.Cut(pattern, "{")
	if !ok {
		return []string{pattern}
	}
	choice, after, _ := strings.Cut(rest, "}")
	var out []string
	for _, end := range variants(after) {
		for word := range strings.SplitSeq(choice, "|") {
			out = append(out, before+word+end)
		}
	}
	return out
}

// texts are all ways of each topic, in an order without order but for the first one; a
// quarter of them is held out.
var texts = sync.OnceValue(func() map[string]Ask {
	lists := maps.Clone(patterns)
	lists["shapes"], lists["bars"], lists["workers"] = fill(patterns["count"], "shape"), fill(patterns["count"], "bar"), fill(patterns["count"], "worker")
	out := map[string]Ask{}
	for topic, list := range lists {
		all := []string{}
		for _, p := range list[1:] {
			all = append(all, variants(p)...)
		}
		slices.Sort(all)
		all = slices.DeleteFunc(slices.Compact(all), func(way string) bool { return way == list[0] })
		seed := fnv.New64a()
		_, _ = seed.Write([]byte(topic))                                                                             // a hash takes everything
		rand.New(rand.NewPCG(seed.Sum64(), 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) // #nosec G404 -- the same each time
		n := len(all) / 4
		out[topic] = Ask{Ways: append([]string{list[0]}, all[n:]...), Held: all[:n]}
	}
	return out
})

// fill puts the name of a shape into texts.
func fill(texts []string, name string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = strings.ReplaceAll(text, "%s", name)
	}
	return out
}

// Ask returns the question of a topic, if the picture has it.
func (p Picture) Ask(topic string) (Ask, bool) {
	i := slices.IndexFunc(p.Asks, func(a Ask) bool { return a.Topic == topic })
	if i < 0 {
		return Ask{}, false
	}
	return p.Asks[i], true
}

// ask adds a question. The topic's last word is the name of a shape if the topic itself
// has no texts.
func (p *Picture) ask(topic, key, answer string) {
	a, ok := texts()[topic]
	if !ok {
		general, name, _ := strings.Cut(topic, " ")
		a = texts()[general]
		a.Ways, a.Held = fill(a.Ways, name), fill(a.Held, name)
	}
	a.Topic, a.Answer, a.Key = topic, answer, key
	p.Asks = append(p.Asks, a)
}

// Fact is the name of something that a classifier can learn of a picture, and how many
// values it has.
type Fact struct {
	Name string
	Size int
}

// FactSizes are all facts. A picture has those that it says something about.
func FactSizes() []Fact {
	facts := []Fact{{"kind", len(Kinds)}, {"door", len(palette)}, {"total", MaxCount + 1}, {"bars", MaxCount + 1}, {"highest", MaxCount},
		{"highest_color", shapeColors}, {"workers", MaxCount + 1}, {"busiest", MaxCount}}
	for i := range 4 {
		facts = append(facts, Fact{fmt.Sprintf("digit%d", i), 10})
	}
	for _, name := range shapeNames {
		facts = append(facts, Fact{"count_" + name, MaxCount + 1}, Fact{"color_" + name, shapeColors}, Fact{"place_" + name, len(places)})
	}
	for _, which := range []string{"leftmost", "rightmost"} {
		facts = append(facts, Fact{which + "_kind", len(shapeNames)}, Fact{which + "_color", shapeColors})
	}
	return facts
}
