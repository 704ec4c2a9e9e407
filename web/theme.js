// Applies the chosen theme before the first paint.
'use strict';
{
  const words = { auto: 'Auto', light: 'Light', dark: 'Dark' };
  const order = ['auto', 'light', 'dark'];
  let kept = null;
  try { kept = localStorage.getItem('elasti-theme'); } catch { /* a private window */ }
  let theme = order.includes(kept) ? kept : 'auto';
  const show = () => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById('theme');
    if (!button) return;
    button.textContent = words[theme];
    button.setAttribute('aria-label', `Colours: ${words[theme]}. Change`);
    button.title = 'Colours: auto, light or dark';
  };
  show();
  document.addEventListener('DOMContentLoaded', () => {
    show();
    document.getElementById('theme').addEventListener('click', () => {
      theme = order[(order.indexOf(theme) + 1) % order.length];
      try { localStorage.setItem('elasti-theme', theme); } catch { /* a private window */ }
      show();
    });
  });
}
