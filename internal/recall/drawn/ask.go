package drawn

import (
	"fmt"
	"slices"
	"strings"
)

// Ask is a question about a picture.
type Ask struct {
	Topic string // "code", "count circle" …
	// Ways are texts of the question. The first quarter of them, rounded up, is not in the
	// training of the built-in model.
	Ways   []string
	Answer string // a sentence
	// Key is what a right answer contains and a wrong one does not.
	Key string
}

// Right reports whether a text answers the question.
func (a Ask) Right(text string) bool { return strings.Contains(text, a.Key) }

// Held returns the number of ways that are held out of the training.
func (a Ask) Held() int { return (len(a.Ways) + 3) / 4 }

// ways are the texts of the questions; %s is the name of a shape.
var ways = map[string][]string{
	"code": {
		"What code does the door have?", "Read the code on the door.", "Which code do you see?", "Which code is on the door?", "What is the code on the door?",
		"which code is on this door", "What number is on the door?", "Tell me the code of the door.", "What is written on the door?",
	},
	"door":          {"Which color is the door?", "What color is the door?", "Which color has the door?", "Tell me the color of the door.", "what is the color of the door"},
	"what":          {"What is in the picture?", "What do you see?", "What does the picture show?", "Describe the picture.", "what is this"},
	"shapes":        {"How many shapes are there?", "How many shapes do you see?", "Count the shapes.", "how many shapes are in the picture", "What is the number of shapes?"},
	"count":         {"How many %ss are there?", "How many %ss do you see?", "Count the %ss.", "how many %ss are in the picture", "What is the number of %ss?"},
	"color":         {"Which color is the %s?", "What color is the %s?", "Which color has the %s?", "Tell me the color of the %s.", "what is the color of the %s"},
	"place":         {"Where is the %s?", "Where do you see the %s?", "In which corner is the %s?", "where is the %s in the picture", "Tell me where the %s is."},
	"leftmost":      {"Which shape is leftmost?", "What is the leftmost shape?", "Which shape is on the left?", "what is on the left", "Name the leftmost shape."},
	"rightmost":     {"Which shape is rightmost?", "What is the rightmost shape?", "Which shape is on the right?", "what is on the right", "Name the rightmost shape."},
	"bars":          {"How many bars are there?", "How many bars do you see?", "Count the bars.", "how many bars are in the chart", "What is the number of bars?"},
	"highest":       {"Which bar is the highest?", "What is the highest bar?", "Which bar is highest?", "which bar is the tallest", "Name the highest bar."},
	"highest color": {"Which color is the highest bar?", "What color is the highest bar?", "Which color has the highest bar?", "what is the color of the highest bar"},
	"workers":       {"How many workers are there?", "How many workers do you see?", "Count the workers.", "how many workers are in the panel", "What is the number of workers?"},
	"busiest":       {"Which worker is the busiest?", "Which worker is busiest?", "What is the busiest worker?", "which worker has most to do", "Name the busiest worker."},
}

// Ask returns the question of a topic, if the picture has it.
func (p Picture) Ask(topic string) (Ask, bool) {
	i := slices.IndexFunc(p.Asks, func(a Ask) bool { return a.Topic == topic })
	if i < 0 {
		return Ask{}, false
	}
	return p.Asks[i], true
}

// Text is the question in a way that the built-in model was trained with.
func (a Ask) Text() string { return a.Ways[a.Held()] }

// ask adds a question. The topic's last word is the name of a shape if the topic itself
// has no ways.
func (p *Picture) ask(topic, key, answer string) {
	texts, ok := ways[topic]
	if !ok {
		general, name, _ := strings.Cut(topic, " ")
		for _, text := range ways[general] {
			texts = append(texts, fmt.Sprintf(text, name))
		}
	}
	p.Asks = append(p.Asks, Ask{Topic: topic, Ways: texts, Answer: answer, Key: key})
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
