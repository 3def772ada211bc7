// Filters and sorts the images. A label is known if an image's folder has the name of a class.
const cards = [...document.querySelectorAll('.card')], holder = document.getElementById('cards');
const get = id => document.getElementById(id), isWrong = card => card.classList.contains('wrong');
const confidence = card => Number(card.dataset.confidence);
const orders = {
  given: () => 0,
  wrong: (a, b) => isWrong(b) - isWrong(a) || (isWrong(a) ? confidence(b) - confidence(a) : 0),
  least: (a, b) => confidence(a) - confidence(b),
  most: (a, b) => confidence(b) - confidence(a),
  class: (a, b) => a.dataset.class.localeCompare(b.dataset.class, 'en', {numeric: true}) ||
    confidence(b) - confidence(a),
};
const show = () => {
  const wanted = get('name').value.toLowerCase(), named = get('class').value, outcome = get('outcome').value;
  holder.append(...[...cards].sort(orders[get('order').value]));
  for (const card of cards) {
    card.hidden = (named && card.dataset.class !== named) || (outcome === 'wrong' && !isWrong(card)) ||
      (outcome === 'right' && (isWrong(card) || !card.dataset.label)) ||
      !card.querySelector('.path').textContent.toLowerCase().includes(wanted);
  }
  get('shown').textContent = `${cards.filter(card => !card.hidden).length} of ${cards.length} images`;
};
const classes = [...new Set(cards.map(card => card.dataset.class))];
for (const name of classes.sort((a, b) => a.localeCompare(b, 'en', {numeric: true}))) get('class').add(new Option(name));
if (!cards.some(card => card.dataset.label)) {
  get('order').querySelector('[value=wrong]').remove();
  get('outcome').parentElement.remove();
}
get('controls').addEventListener('input', show);
get('controls').addEventListener('submit', event => event.preventDefault());
get('controls').hidden = cards.length === 0;
