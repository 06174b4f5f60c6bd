package localpubsub_test

// restart kills the server, if it has a file. The next calls go to a new
// server, which knows the content of the file at this moment.
func (p *player) restart() {
	if p.options.File == "" {
		return
	}
	options := p.options
	options.File, options.Clock = p.leftBehind(p.options.File), p.clock
	killed := p.Server
	p.world = newWorld(p.t, options)
	for _, s := range p.streams {
		s.cancel()
	}
	if err := killed.Close(); err != nil {
		p.t.Error(err)
	}
	p.options, p.streams, p.held = options, nil, nil
	p.beginAnew()
}
