package tokenizer

import (
	"strings"
	"testing"
)

// mixedText is prose, code and other scripts in equal measure, about 1 MB.
func mixedText() string {
	const part = `The quick brown fox doesn't jump over 12,345 lazy dogs; it's resting near the river, watching clouds drift by.
"Who would have thought," she asked, "that something so small could matter so much to everyone in the village?"
func (s *Scheduler) Step(ctx context.Context) error {
	for _, seq := range s.running {
		if err := s.decode(ctx, seq.ID, 0x1F); err != nil {
			return fmt.Errorf("decode %d: %w", seq.ID, err) // keep going?
		}
	}
	return nil
}
{"model": "llama-3", "temperature": 0.7, "messages": [{"role": "user", "content": "Hi!"}]}
Привет, мир! Как дела сегодня? Быстрая коричневая лиса перепрыгивает через ленивую собаку.
今天天气很好，我们去公园散步吧。日本語のテキストもあります。한국어 문장도 있어요.
Café naïve façade — über Straße, señor; déjà vu. 🙂🌊 ½ € 3.14159 http://example.com/path?q=1&r=2
`
	return strings.Repeat(part, 1<<20/len(part))
}

func BenchmarkEncode(b *testing.B) {
	text := mixedText()
	for _, name := range []string{"llama3-like", "qwen2-like", "gpt2", "o200k", "deepseek", "kimi", "llama2-like", "gemma-like", "t5-like", "unigram-xlmr", "bert"} {
		for _, v := range variants {
			if v.name != name {
				continue
			}
			b.Run(name, func(b *testing.B) {
				tok, err := Load(v.file(b))
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				var ids []uint32
				for b.Loop() {
					ids = tok.EncodeTo(ids[:0], text, false)
				}
			})
		}
	}
}

// BenchmarkEncodeRun encodes a million equal characters: one word that merges
// all the way, the worst case of a merge loop.
func BenchmarkEncodeRun(b *testing.B) {
	for _, name := range vectorNames {
		tok := loadVector(b, name)
		for label, unit := range map[string]string{"letters": "a", "spaces": " ", "marks": "!"} {
			b.Run(name+"/"+label, func(b *testing.B) {
				text := strings.Repeat(unit, 1<<20)
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					tok.Encode(text, false)
				}
			})
		}
	}
}

func BenchmarkEncodePrompt(b *testing.B) {
	tok := loadVector(b, "llama3-like")
	text := mixedText()[:2000]
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var ids []uint32
	for b.Loop() {
		ids = tok.EncodeTo(ids[:0], text, false)
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range vectorNames {
		b.Run(name, func(b *testing.B) {
			tok := loadVector(b, name)
			ids := tok.Encode(mixedText(), false)
			b.SetBytes(int64(len(tok.Decode(ids, true))))
			b.ReportAllocs()
			for b.Loop() {
				tok.Decode(ids, true)
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	for _, name := range []string{"llama3-like", "llama2-like", "t5-like"} {
		b.Run(name, func(b *testing.B) {
			tok := loadVector(b, name)
			ids := tok.Encode(mixedText()[:20000], false)
			b.SetBytes(20000)
			b.ReportAllocs()
			for b.Loop() {
				s := tok.NewStream(true)
				for _, id := range ids {
					s.Push(id)
				}
				s.Flush()
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"llama3-like", "t5-like"} {
		b.Run(name, func(b *testing.B) {
			file := readFile(b, name+".tokenizer.json")
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				if _, err := Load(file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
