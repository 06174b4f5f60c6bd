// Package live is a web page that shows the pair at work: where its events are, how long they take,
// and which processes run. The page may have buttons, which attack the pair. A page with buttons
// also marks each promise that was seen to hold.
//
// The page gets several frames a second by server-sent events. A frame has sums and a sample of the
// events, so its size does not depend on the rate of events. A browser that is slower than the
// frames misses some of them, so no queue grows. Frames are made only while a browser looks.
//
// The page is plain HTML with a script and a style sheet, all embedded. It loads nothing
// from elsewhere.
package live

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"time"
)

//go:embed page
var files embed.FS

// pages is parsed once, because its source is part of the binary.
var pages = template.Must(template.ParseFS(files, "page/index.html"))

const (
	// pressHeader is on every press. A page of another origin cannot send it, because the browser
	// asks the server for permission first, and gets none.
	pressHeader = "Lockstep-Press"
	// writeTime bounds the sending of one frame.
	writeTime = 10 * time.Second
)

// Options configures a page. A page without buttons only shows the pair.
type Options struct {
	Title    string
	Buttons  []Button
	Promises []Promise
}

// Page is the page and its viewers. Its methods may be called at the same time.
type Page struct {
	views
	html    []byte
	tag     string
	known   map[string]bool
	presses chan string
	mux     *http.ServeMux
}

// New returns a page that has no frame yet.
func New(o Options) (*Page, error) {
	p := &Page{views: newViews(), known: map[string]bool{}, presses: make(chan string)}
	var html bytes.Buffer
	if err := pages.Execute(&html, newContent(o)); err != nil {
		return nil, fmt.Errorf("make the page: %w", err)
	}
	p.html = html.Bytes()
	sum := sha256.Sum256(p.html)
	p.tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	for _, b := range o.Buttons {
		p.known[b.Name] = b.Without == ""
	}
	p.mux = http.NewServeMux()
	p.mux.HandleFunc("GET /{$}", p.index)
	for _, name := range []string{"/style.css", "/script.js", "/icon.svg"} {
		p.mux.HandleFunc("GET "+name, asset(name))
	}
	p.mux.HandleFunc("GET /frames", p.stream)
	if len(o.Buttons) > 0 {
		p.mux.HandleFunc("POST /press/{name}", p.press)
	}
	return p, nil
}

// ServeHTTP serves the page at /, and the parts of the page next to it. A page with buttons is
// served only if the request's Host is a name of this machine. Otherwise a foreign page could make
// its own name lead to this machine, and read this page under that name.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if len(p.known) > 0 && !isLoopback(r.Host) {
		http.Error(w, "the page is for this machine, by its own name", http.StatusForbidden)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// Run shows a frame of source each FrameTime while a browser looks, until ctx ends.
func (p *Page) Run(ctx context.Context, source func() Frame) error {
	tick := time.NewTicker(FrameTime)
	defer tick.Stop()
	for {
		if p.Viewers() == 0 {
			select {
			case <-p.came:
			case <-ctx.Done():
				return nil
			}
		}
		if err := p.Show(source()); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Show sends a frame to all viewers.
func (p *Page) Show(f Frame) error {
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("frame: %w", err)
	}
	p.send(text)
	return nil
}

// Presses returns a channel with the names of pressed buttons. It has only buttons whose action is
// possible. While no goroutine receives from the channel, a press is refused.
func (p *Page) Presses() <-chan string { return p.presses }

func (p *Page) index(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", p.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.html))
}

func asset(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		http.ServeFileFS(w, r, files, "page"+name)
	}
}

func (p *Page) press(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(pressHeader) == "" {
		http.Error(w, "a press has the header "+pressHeader, http.StatusForbidden)
		return
	}
	name := r.PathValue("name")
	if !p.known[name] {
		http.Error(w, "no such button here", http.StatusNotFound)
		return
	}
	select {
	case p.presses <- name:
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "another action runs", http.StatusConflict)
	}
}

// isLoopback reports whether host is a name of this machine. It is false for other names that lead
// to this machine, such as the name of a foreign page.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	return err == nil && (name == "localhost" || net.ParseIP(name).IsLoopback())
}

// content is the data of the page's template.
type content struct {
	Title    string
	Groups   []group
	Promises []Promise
}

type group struct {
	Name    string
	Buttons []Button
}

// newContent groups the buttons. The buttons of a group keep their order. The groups are in the
// order of their first buttons.
func newContent(o Options) content {
	c := content{Title: o.Title, Promises: o.Promises}
	at := map[string]int{}
	for _, b := range o.Buttons {
		i, found := at[b.Group]
		if !found {
			i = len(c.Groups)
			at[b.Group] = i
			c.Groups = append(c.Groups, group{Name: b.Group})
		}
		c.Groups[i].Buttons = append(c.Groups[i].Buttons, b)
	}
	return c
}
