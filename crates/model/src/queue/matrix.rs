//! Small dense matrices for matrix-analytic methods.

use std::ops::{Index, IndexMut};

/// A matrix, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    rows: usize,
    columns: usize,
    data: Vec<f64>,
}

/// By row and column, from 0.
impl Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, cell: (usize, usize)) -> &f64 {
        &self.data[cell.0 * self.columns + cell.1]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, cell: (usize, usize)) -> &mut f64 {
        &mut self.data[cell.0 * self.columns + cell.1]
    }
}

impl Matrix {
    pub(super) fn zero(rows: usize, columns: usize) -> Self {
        Matrix { rows, columns, data: vec![0.0; rows * columns] }
    }

    pub(super) fn identity(n: usize) -> Self {
        let mut one = Self::zero(n, n);
        (0..n).for_each(|i| one[(i, i)] = 1.0);
        one
    }

    pub(super) fn transposed(&self) -> Self {
        let mut out = Self::zero(self.columns, self.rows);
        for i in 0..self.rows {
            (0..self.columns).for_each(|j| out[(j, i)] = self[(i, j)]);
        }
        out
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.data[i * self.columns..(i + 1) * self.columns]
    }

    /// Self times `other`; zeros of the left factor cost nothing.
    pub(super) fn times(&self, other: &Matrix) -> Matrix {
        let mut out = Self::zero(self.rows, other.columns);
        for i in 0..self.rows {
            let into = &mut out.data[i * other.columns..(i + 1) * other.columns];
            for (k, &a) in self.row(i).iter().enumerate() {
                if a != 0.0 {
                    into.iter_mut().zip(other.row(k)).for_each(|(x, b)| *x += a * b);
                }
            }
        }
        out
    }

    /// Self + `factor`·other.
    pub(super) fn plus(&self, factor: f64, other: &Matrix) -> Matrix {
        let data = self.data.iter().zip(&other.data).map(|(a, b)| a + factor * b).collect();
        Matrix { data, ..*self }
    }

    /// Self times a number.
    pub(super) fn scaled(&self, factor: f64) -> Matrix {
        Matrix { data: self.data.iter().map(|a| factor * a).collect(), ..*self }
    }

    /// A row vector times self.
    pub(super) fn after(&self, left: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.columns];
        for (i, &a) in left.iter().enumerate() {
            out.iter_mut().zip(self.row(i)).for_each(|(x, b)| *x += a * b);
        }
        out
    }

    /// Self times a column vector.
    pub(super) fn before(&self, right: &[f64]) -> Vec<f64> {
        (0..self.rows).map(|i| self.row(i).iter().zip(right).map(|(a, b)| a * b).sum()).collect()
    }

    /// The solution x of self·x = `right`, by elimination with row pivots; `None` if the matrix is
    /// singular.
    pub(super) fn solve(&self, mut right: Vec<f64>) -> Option<Vec<f64>> {
        let (n, mut a) = (self.rows, self.data.clone());
        for k in 0..n {
            let at = |i: usize| a[i * n + k].abs();
            let pivot = (k..n).max_by(|&i, &j| at(i).total_cmp(&at(j)))?;
            if pivot != k {
                (k..n).for_each(|j| a.swap(pivot * n + j, k * n + j));
                right.swap(pivot, k);
            }
            let (above, below) = a.split_at_mut((k + 1) * n);
            let row = &above[k * n..];
            for (i, other) in below.chunks_exact_mut(n).enumerate() {
                let factor = other[k] / row[k];
                if factor != 0.0 {
                    other[k..].iter_mut().zip(&row[k..]).for_each(|(x, y)| *x -= factor * y);
                    right[k + 1 + i] -= factor * right[k];
                }
            }
        }
        for k in (0..n).rev() {
            let known: f64 = (k + 1..n).map(|j| a[k * n + j] * right[j]).sum();
            right[k] = (right[k] - known) / a[k * n + k];
        }
        right.iter().all(|x| x.is_finite()).then_some(right)
    }

    /// The inverse, by Gauss–Jordan elimination with row pivots; `None` if the matrix is singular.
    pub(super) fn inverse(&self) -> Option<Matrix> {
        let n = self.rows;
        let (mut a, mut out) = (self.clone(), Self::identity(n));
        for k in 0..n {
            let pivot = (k..n).max_by(|&i, &j| a[(i, k)].abs().total_cmp(&a[(j, k)].abs()))?;
            let value = a[(pivot, k)];
            if !value.is_finite() || value == 0.0 {
                return None;
            }
            for matrix in [&mut a, &mut out] {
                if pivot != k {
                    for j in 0..n {
                        matrix.data.swap(pivot * n + j, k * n + j);
                    }
                }
                (0..n).for_each(|j| matrix[(k, j)] /= value);
            }
            for i in 0..n {
                let factor = a[(i, k)];
                if i != k && factor != 0.0 {
                    for matrix in [&mut a, &mut out] {
                        let (low, high) = matrix.data.split_at_mut(i.max(k) * n);
                        let (first, second) =
                            (&mut low[i.min(k) * n..i.min(k) * n + n], &mut high[..n]);
                        let (to, from) = if i < k { (first, second) } else { (second, first) };
                        to.iter_mut().zip(from.iter()).for_each(|(x, y)| *x -= factor * y);
                    }
                }
            }
        }
        out.data.iter().all(|x| x.is_finite()).then_some(out)
    }
}
