package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// order is a row of the table orders.
type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

const columns = `id, customer, item, quantity`

type store struct{ db *pgxpool.Pool }

// place inserts an order, and takes its items out of the stock.
func (s store) place(ctx context.Context, o order) (order, error) {
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) (err error) {
		_, err = tx.Exec(ctx, `
			INSERT INTO stock (item, taken) VALUES ($1, $2)
			ON CONFLICT (item) DO UPDATE SET taken = stock.taken + excluded.taken`, o.Item, o.Quantity)
		if err != nil {
			return err
		}
		o, err = one(tx.Query(ctx, `INSERT INTO orders (customer, item, quantity) VALUES ($1, $2, $3)
			RETURNING `+columns, o.Customer, o.Item, o.Quantity))
		return err
	})
	return o, err
}

// change changes the quantity of an order, and the stock with it.
func (s store) change(ctx context.Context, id int64, quantity int) (o order, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) (err error) {
		var before int
		if err = tx.QueryRow(ctx, `SELECT quantity FROM orders WHERE id = $1 FOR UPDATE`, id).Scan(&before); err != nil {
			return err
		}
		o, err = one(tx.Query(ctx, `UPDATE orders SET quantity = $2, updated_at = now() WHERE id = $1
			RETURNING `+columns, id, quantity))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE stock SET taken = taken + $2 WHERE item = $1`, o.Item, quantity-before)
		return err
	})
	return o, err
}

func (s store) get(ctx context.Context, id int64) (order, error) {
	return one(s.db.Query(ctx, `SELECT `+columns+` FROM orders WHERE id = $1`, id))
}

// one returns the one row of a query.
func one(rows pgx.Rows, err error) (order, error) {
	if err != nil {
		return order{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[order])
}
