package manual

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func drainPage() Page {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.BoolP("yes", "y", false, "do not ask")
	fs.String("progress", "auto", "how `MODE` is shown")
	return Page{
		Path: "dynctl drain", Short: "Let <workers> finish", Usage: "dynctl drain <worker>... [flags]",
		Long: "First paragraph.\n.second line\n\nSecond one with a \\ in it.", Note: "changing: it changes things",
		Examples: []string{"dynctl drain worker-7 --yes"}, Commands: []Entry{{"dynctl drain all", "All of them", "More"}},
		Flags: []Group{{"Waiting", []*pflag.Flag{fs.Lookup("yes"), fs.Lookup("progress")}}},
		See:   []string{"dynctl resume", "dynctl drain", "dynctl"}, Sections: []Section{{"Codes", "  0  fine\n"}},
	}
}

func TestRoff(t *testing.T) {
	var b strings.Builder
	if err := Roff(&b, drainPage()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`.TH "DYNCTL\-DRAIN" "1" "" "dynctl" "dynctl manual"`, "dynctl\\-drain \\- Let <workers> finish\n",
		"First paragraph.\n\\&.second line\n.PP\nSecond one with a \\e in it.\n.PP\nchanging: it changes things\n",
		".TP\n\\fB\\-y, \\-\\-yes\\fP\ndo not ask\n", ".TP\n\\fB\\-\\-progress\\fP \\fIMODE\\fP\nhow MODE is shown (default \"auto\")\n",
		".SS More\n.TP\n\\fBdynctl drain all\\fP\nAll of them\n", ".nf\ndynctl drain worker\\-7 \\-\\-yes\n.fi\n",
		".SH CODES\n.nf\n  0  fine\n.fi\n", ".SH SEE ALSO\n\\fBdynctl\\-resume\\fP(1), \\fBdynctl\\-drain\\fP(1), \\fBdynctl\\fP(1)\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
}

// What is written is what man reads, where there is one to ask.
func TestRoffIsReadByMan(t *testing.T) {
	var lint []string
	for _, args := range [][]string{{"mandoc", "-T", "lint", "-W", "error"}, {"groff", "-man", "-Tutf8", "-ww", "-z"}} {
		if _, err := exec.LookPath(args[0]); err == nil && lint == nil {
			lint = args
		}
	}
	if lint == nil {
		t.Skip("neither mandoc nor groff here")
	}
	var b strings.Builder
	if err := Roff(&b, drainPage()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(lint[0], lint[1:]...)
	cmd.Stdin = strings.NewReader(b.String())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %v\n%s", lint, err, out)
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	root := Page{Path: "dynctl", Short: "Operate", Usage: "dynctl <command>"}
	if err := Markdown(&b, "Reference", []Page{root, drainPage()}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Reference\n", "\nOperate.\n\n```\ndynctl <command>\n```\n", "\n## dynctl drain\n\nLet \\<workers> finish.\n*changing: it changes things*\n",
		"- `dynctl drain all`: All of them\n", "```\nWaiting:\n  -y, --yes", "\n### Codes\n\n```\n  0  fine\n```\n",
		"See also: `dynctl resume`, [dynctl drain](#dynctl-drain)\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "(#dynctl)") {
		t.Errorf("a page links to the document that it is in:\n%s", b.String())
	}
	if strings.Contains(b.String(), "## dynctl\n") {
		t.Errorf("the first page has a heading of its own:\n%s", b.String())
	}
}
