package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func routes(s store) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", answer(func(r *http.Request, o order) (order, error) { return s.place(r.Context(), o) }))
	mux.HandleFunc("PUT /orders/{id}", answer(func(r *http.Request, o order) (order, error) {
		return s.change(r.Context(), id(r), o.Quantity)
	}))
	mux.HandleFunc("GET /orders/{id}", answer(func(r *http.Request, _ order) (order, error) { return s.get(r.Context(), id(r)) }))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /metrics", promhttp.Handler())
	return mux
}

// answer decodes a request's body, if it has one, and encodes the answer of do.
func answer(do func(*http.Request, order) (order, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o order
		if r.ContentLength > 0 {
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		o, err := do(r, o)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			http.NotFound(w, r)
		case err != nil:
			slog.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
			http.Error(w, "the order was not written", http.StatusInternalServerError)
		default:
			_ = json.NewEncoder(w).Encode(o) // a client that is gone needs no answer
		}
	}
}

// id returns the id in a request's path. No order has the id 0.
func id(r *http.Request) int64 {
	id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
	return id
}
