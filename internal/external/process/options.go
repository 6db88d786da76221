package process

import (
	"fmt"
	"strconv"
	"strings"
)

// option returns the value of an option of the command line, the last if there are several.
// Engines take _ for -.
func (p *plan) option(names ...string) (text string, ok bool) {
	for i, word := range p.Words {
		name, value, joined := strings.Cut(word, "=")
		for _, n := range names {
			switch {
			case strings.ReplaceAll(name, "_", "-") != n:
			case joined:
				text, ok = value, true
			case i+1 < len(p.Words):
				text, ok = p.Words[i+1], true
			default:
				ok = true
			}
		}
	}
	return text, ok
}

// add adds an option, unless the command line has it.
func (p *plan) add(option, value string) {
	if _, ok := p.option(option); !ok {
		p.Words = append(p.Words, option, value)
	}
}

// flag adds an option without a value, unless the command line has it or its contrary.
func (p *plan) flag(option string) {
	other := "--no-" + strings.TrimPrefix(option, "--")
	if name, ok := strings.CutPrefix(option, "--no-"); ok {
		other = "--" + name
	}
	_, on := p.option(option)
	if _, off := p.option(other); !on && !off {
		p.Words = append(p.Words, option)
	}
}

// environment returns the value of a variable that the server gets.
func (p *plan) environment(name string) (text string, ok bool) {
	for _, line := range p.Env {
		if n, value, _ := strings.Cut(line, "="); n == name {
			text, ok = value, true
		}
	}
	return text, ok
}

// variable sets a variable, unless it is set.
func (p *plan) variable(name, value string) {
	if _, ok := p.environment(name); !ok {
		p.Env = append(p.Env, name+"="+value)
	}
}

// variablePort sets a variable to the first of n ports, unless it is set.
func (p *plan) variablePort(name string, want, n int) error {
	if _, ok := p.environment(name); ok {
		return nil
	}
	port, err := p.ports(loopback, want, n)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.variable(name, strconv.Itoa(port))
	return nil
}
