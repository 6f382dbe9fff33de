/* scan.c -- see scan.h. For the keys of a panel in the forward pass, from the last to the first:
 *
 *     for (int j = to - 1; j >= from; j--)
 *         for (int l = 0; l < width; l++)
 *             sum[j][l] = passed[l] += sigmoid(scale * dot(q[l], k[j]));
 *
 * One matrix product and one vector loop compute the gates of a panel, once for all operators with a stage `scan`.
 */
#include "relative/scan.h"

#include "base/elementary.h"
#include "relative/lookup.h"

/* Set the gates of a panel. The gate is 0 if the pair is masked or the key's position exceeds the query's. */
static void set_gates(const pe_content *c, const pe_view *view)
{
    real *gate = c->gates;
    const pe_panel *p = view->panel;
    const pe_panel_bias *bias = view->bias;
    const int width = p->width, n = bias->to - bias->from;
    FN(multiply_rows)(view->k, bias->from, n, c->d, c->q + p->first * c->d, width, gate);
    SIMD
    for (int i = 0; i < n * width; i++)
        gate[i] = R(0.5) + R(0.5) * tanh_(R(0.5) * c->gate_scale * gate[i]);
    for (int j = 0; j < n; j++, gate += width) {
        const double key = view->keys->position.at[bias->from + j], *at = view->queries->position.at + p->first;
        SIMD
        for (int l = 0; l < width; l++)
            gate[l] = key <= at[l] ? gate[l] : 0;
        if (!bias->add)
            continue;
        SIMD
        for (int l = 0; l < width; l++)
            gate[l] = bias->add[j * bias->step + l] == MASKED ? 0 : gate[l];
    }
}

/* Add sign * gate to c->passed, from the first key to the last. */
static void add_ascending(pe_content *c, const pe_view *view, double sign)
{
    const int width = view->panel->width;
    double *passed = c->passed + view->panel->first;
    for (int j = 0; j < view->bias->to - view->bias->from; j++) {
        for (int l = 0; l < width; l++)
            passed[l] += sign * (double)c->gates[j * width + l];
    }
}

void FN(scan_count)(pe_content *c, const pe_view *view)
{
    set_gates(c, view);
    add_ascending(c, view, 1);
}

void FN(scan_panel)(pe_content *c, const pe_view *view)
{
    set_gates(c, view);
    if (c->ascending)
        add_ascending(c, view, -1);
}

void FN(scan_panel_end)(pe_content *c, const pe_view *view)
{
    const int width = view->panel->width;
    double *passed = c->passed + view->panel->first;
    if (c->ascending)
        return;
    for (int j = view->bias->to - view->bias->from - 1; j >= 0; j--) {
        for (int l = 0; l < width; l++)
            passed[l] += (double)c->gates[j * width + l];
    }
}

/* d gate_it = sum over j <= t of dx_ij d s_ij / d sum_ij, times gate' = gate (1 - gate). If dx or
 * the gate is 0, so is its product with a nonfinite factor. */
void FN(scan_gates_vjp)(pe_content_vjp *vjp, const pe_view *view, const real *dx)
{
    const pe_panel *p = view->panel;
    const int width = p->width, n = view->bias->to - view->bias->from;
    const real *gate = vjp->content->gates;
    real *d_gate = vjp->d_gates + score_offset(p, view->bias->from);
    double *sum = vjp->d_passed + p->first;
    for (int j = 0; j < n; j++) {
        for (int l = 0; l < width; l++) {
            const int i = j * width + l;
            sum[l] += dx[i] == 0 ? 0 : (double)(dx[i] * d_gate[i]);
            d_gate[i] = gate[i] == 0 ? 0 : (real)sum[l] * (gate[i] * (1 - gate[i]));
        }
    }
}
