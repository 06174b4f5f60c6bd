package monitoring

import (
	"fmt"
	"strings"
)

// grafanaDir has Grafana's boards.
const grafanaDir = "deploy/observability/grafana/boards/"

type object = map[string]any

// source is the Prometheus that a reader of the board chooses; at first Grafana's default.
var source = object{"type": "prometheus", "uid": "${source}"}

// Sizes in Grafana's grid of 24 columns.
const (
	gridWidth    = 24
	panelHeight  = 8
	numberHeight = 4
)

// grafanaBoard is a board in Grafana's own form, which files and imports have.
func grafanaBoard(b Board) object {
	var panels []object
	y := 0
	add := func(panel object, x, width, height int) {
		panel["id"] = len(panels) + 1
		panel["gridPos"] = object{"x": x, "y": y, "w": width, "h": height}
		panels = append(panels, panel)
	}
	for _, row := range b.Rows {
		add(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{}}, 0, gridWidth, 1)
		y++
		width, height := gridWidth/across(row), panelHeight
		if row.Panels[0].Latest {
			height = numberHeight
		}
		x := 0
		for _, p := range row.Panels {
			if x+width > gridWidth {
				x, y = 0, y+height
			}
			add(grafanaPanel(p), x, width, height)
			x += width
		}
		y += height
	}
	return object{
		"uid": "lockstep-" + b.ID, "title": b.Title, "tags": []string{"lockstep"}, "schemaVersion": 39,
		"editable": false, "refresh": "10s", "time": object{"from": "now-30m", "to": "now"},
		"templating": object{"list": []object{{
			"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus",
		}}},
		"panels": panels,
	}
}

// across is how many panels of a row stand side by side: all numbers, up to four charts, three
// of more.
func across(row Row) int {
	if n := len(row.Panels); n <= 4 || row.Panels[0].Latest {
		return n
	}
	return 3
}

func grafanaPanel(p Panel) object {
	var targets []object
	for i, q := range p.Queries {
		legend := q.Legend
		if legend == "" {
			legend = "__auto"
		}
		targets = append(targets, object{
			"refId": fmt.Sprintf("%c", 'A'+i), "datasource": source, "expr": q.Expr, "legendFormat": legend,
			"instant": p.Latest, "range": !p.Latest,
		})
	}
	defaults := object{"unit": grafanaUnit(p.Unit), "min": 0}
	panel := object{
		"type": "timeseries", "title": p.Title, "description": p.Description(), "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
		"options": object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
	if p.Latest {
		panel["type"] = "stat"
		panel["options"] = object{"graphMode": "none", "reduceOptions": object{"calcs": []string{"lastNotNull"}}}
		defaults["thresholds"] = object{"mode": "absolute", "steps": []object{{"value": nil, "color": "green"}, {"value": 1, "color": "red"}}}
	}
	return panel
}

// grafanaUnit is Grafana's name of a unit of Panel.
func grafanaUnit(unit string) string {
	switch unit {
	case "s", "ms":
		return unit
	case "By":
		return "bytes"
	case "1":
		return "percentunit"
	}
	if strings.HasSuffix(unit, "/s") {
		return "suffix:/s"
	}
	return "short"
}

// boardsTable lists the panels for the documents.
func boardsTable() string {
	var b strings.Builder
	b.WriteString("| board | row | panels |\n| --- | --- | --- |\n")
	for _, board := range Boards {
		for _, row := range board.Rows {
			var titles []string
			for _, p := range row.Panels {
				titles = append(titles, p.Title)
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.TrimPrefix(board.Title, "lockstep: "), row.Title, strings.Join(titles, " · "))
		}
	}
	return b.String()
}
